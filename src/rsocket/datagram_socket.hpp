// DatagramSocket: an rsocket of datagrams. It has a socket of the kernel's UDP, which gives it its
// name and descriptor, and a UdLink for each local address that it sends from. A datagram goes by
// UDP until the peer has told its queue pair, and then by queue pairs. A peer that has not been
// heard of for a second may have ended and started again: the next datagram goes by UDP, which asks
// it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "rsocket/datagram_messages.hpp"
#include "rsocket/endpoint.hpp"
#include "rsocket/name.hpp"
#include "rsocket/ud_link.hpp"

namespace feroce::rsockets {

class DatagramSocket final : public Endpoint {
public:
    static Result<std::shared_ptr<DatagramSocket>> create(int family, bool blocking);
    ~DatagramSocket() override;

    int descriptor() const override { return udp_; }

    Result<void> bind(const sockaddr* address, socklen_t length) override;
    Result<void> connect(const sockaddr* address, socklen_t length) override;
    Result<void> shut_down(int how) override;
    void close() override;  // Waits a moment for datagrams that are on their way.

    Result<std::size_t> send(Places from, int flags, const Destination& to) override;
    Result<std::size_t> receive(std::span<const iovec> to, int flags,
                                const Sender& sender) override;

    Result<void> local_name(sockaddr* address, socklen_t* length) override;
    Result<void> peer_name(sockaddr* address, socklen_t* length) override;
    // Those of the kernel's socket, and SOL_RDMA.
    Result<void> set_option(int level, int name, const void* value, socklen_t length) override;
    Result<void> get_option(int level, int name, void* value, socklen_t* length) override;

    short ready(short wanted, bool arm_first) override;

private:
    struct Peer {
        UdLink* link = nullptr;
        AddressHandle handle{nullptr, ibv_destroy_ah};  // None: its queue pair is not known.
        std::uint32_t queue_pair = 0;
        Clock::time_point heard;  // At first: when the entry was made.
    };
    // What arrived: in a place of the link, or, if it came by UDP, in memory of its own.
    struct Datagram {
        Name from;
        ByteView bytes;
        UdLink* link = nullptr;
        std::uint32_t place = 0;
        std::vector<std::byte> own;
    };

    DatagramSocket(int family, bool blocking) : Endpoint(blocking), family_(family) {}
    Result<void> open();

    // All below: with the lock held.
    void progress() override;
    void arm() override;
    void drain() override;
    void append_descriptors(std::vector<pollfd>& to) const override;

    void take_udp();
    void on_udp(const Name& from, ByteView packet);
    void take_arrivals(UdLink& link);
    void on_arrival(UdLink& link, const UdLink::Arrival& arrival);
    void learn(Peer& peer, const Name& name, std::uint32_t queue_pair);
    Name scoped(Name sender, const UdLink& link) const;
    bool is_wanted(const Name& from) const;

    Result<void> on_dissolved();
    std::optional<Name> kernel_name() const;
    Result<void> ensure_bound();
    Result<Name> destination(const Destination& to) const;
    Result<Name> local_toward(const Name& peer) const;
    Result<UdLink*> link_toward(const Name& peer);
    void replace(std::unique_ptr<UdLink>& failed, std::unique_ptr<UdLink> by);
    void drop_read_links();
    // The entry of a peer, with a link that has not failed. Only until the next look-up, and while
    // the lock is held.
    Result<Peer*> peer_of(const Name& name);
    Peer& new_peer(const Name& name);
    bool is_known(const Peer& peer) const;
    int send_by_udp(UdpHeader::Kind kind, const Name& to, const UdLink& link, Places from);
    Result<void> send_all_by_udp(Lock& lock, const Name& to, Places from, bool blocking,
                                 Deadline deadline);
    Result<void> send_by_link(Peer& peer, Places from);
    int await_udp_room(Lock& lock, bool blocking, Deadline deadline);
    std::size_t copy_out(const Datagram& datagram, std::span<const iovec> to,
                         const Sender& sender) const;
    void drop_first();

    // What a call waits for.
    bool has_news() const;
    bool has_room() const;
    bool is_quiet() const;

    const int family_;
    int udp_ = -1;
    int all_ = -1;        // An epoll of all descriptors, so that a sleeper hears of a new link too.
    bool bound_ = false;  // The kernel's socket has a port.
    std::uint32_t looks_ = 0;
    bool can_read_ = true;
    bool can_write_ = true;
    int error_ = 0;  // Of the kernel's socket, for the next call.
    std::optional<Name> connected_;
    std::vector<std::unique_ptr<UdLink>> links_;
    std::vector<std::unique_ptr<UdLink>>
        failed_;  // Used no more; some of their datagrams are unread.
    std::map<Name, Peer> peers_;
    std::deque<Datagram> arrived_;
    std::size_t arrived_by_udp_ = 0;
};

}  // namespace feroce::rsockets
