// UdpSender: seals runs and hands them to the kernel. Sends from Outlets, which are never
// connected and set DF, because only then is the IPv4 id predictable (0, or 0,1,2... for the
// segments of one send), which the ICRC covers. One source port never serves two slots of a peer at
// once, or a NIC's receive offload could merge their packets. Under its shard's lock, so it takes
// no memory after its construction, but for fault injection.
//
// The network tells sockets of packets that did not arrive (ICMP). The kernel makes a later send
// fail for it, which is then repeated: no packet is lost. The peers are remembered as suspects.
// A socket in an epoll set costs each of its packets some 50 ns, so only those of the connection
// manager, which sends little, are in one; of others it is heard when they send again.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/gid.hpp"
#include "base/random.hpp"
#include "cm/suspects.hpp"
#include "port/address.hpp"
#include "port/capture.hpp"
#include "port/disturber.hpp"
#include "port/faults.hpp"
#include "port/gid_places.hpp"
#include "port/local_addresses.hpp"
#include "port/network.hpp"
#include "port/outlet.hpp"
#include "port/segmenter.hpp"
#include "transport/transmit_batch.hpp"
#include "wire/icrc.hpp"

namespace feroce::port {

// What stands in the way of packets; both may be null.
struct Meddlers {
    Capture* capture = nullptr;
    FaultInjector* faults = nullptr;
};

class UdpSender {
public:
    // `local`: of that network. Outlives the sender.
    UdpSender(std::shared_ptr<Network> network, const LocalAddresses& local, RandomSource& random,
              std::uint16_t port, const Meddlers& meddlers = {});
    void forgo_segmentation() { segmentation_ = false; }  // As if the kernel had refused it.

    void transmit(std::span<const transport::TransmitRun> runs);
    std::uint64_t dropped_packets() const { return dropped_packets_; }
    // The errno with which the last packets of this path were refused; 0 if they were not.
    int send_error(const transport::Path& path) const;
    void forget_refusals() { trouble_count_ = 0; }
    // An epoll set that is ready when the network says something of the connection manager's
    // packets. Before anything is sent.
    void tell_errors_by(int set) { errors_set_ = set; }
    void look_at_errors();  // Of what is ready in that set, a part.
    bool has_suspects() const { return !suspects_.empty(); }
    cm::Suspects take_suspects() { return std::exchange(suspects_, {}); }
    // How often all addresses were searched for one that the machine has lost.
    std::uint64_t searches() const { return searches_; }

private:
    static constexpr std::size_t kSocketsPerAddress = 4;  // And the connection manager's.
    // Addresses to send from, more than a machine has. Some 170 KiB, of which the kernel backs what
    // is used.
    static constexpr std::size_t kAddressesMax = 1024;

    struct Address {
        Gid gid;
        // Interface index, for link-local and multicast destinations. 0: not known by the addresses
        // of that version.
        std::uint32_t scope = 0;
        std::uint32_t version = 0;
        std::array<Outlet, kSocketsPerAddress + 1> outlets;
    };

    // A path whose packets the kernel refuses, until it takes one again.
    struct Trouble {
        Gid source;
        Gid destination;
        int error = 0;
        std::size_t bytes = 0;  // Of a packet. Where it was too long, a shorter one proves nothing.
    };
    static constexpr std::size_t kTroublesMax = 16;

    void note_refused(const transport::TransmitRun& run, std::size_t bytes, int error);
    void note_sent(const transport::TransmitRun& run, std::size_t bytes);
    // Null, with open_error_ set, if there is none to be had.
    Address* address_of(const Gid& source);
    Address* add_address(const Gid& source);
    bool give_up_address();
    void learn_scope(Address& address) const;
    Outlet* outlet_for(Address* address, const transport::TransmitRun& run);
    // Damage: 0, or the seed by which sealed packets are damaged.
    void send_runs(std::span<const transport::TransmitRun> runs, std::uint64_t damage);
    void send_through(Outlet& outlet, std::span<const transport::TransmitRun> runs,
                      std::uint64_t damage);
    void send_batch(Outlet& outlet, Segmenter& segmenter, std::span<const Send> sends);
    // Whether the sends that are left may succeed in another form, which they have from now on.
    bool finds_another_way(Outlet& outlet, Segmenter& segmenter, const Send& refused, int error);
    int send_some(const Outlet& outlet, std::span<mmsghdr> messages);  // As sendmmsg().
    void seal(const Outlet& outlet, const Send& send, std::uint64_t damage) const;
    void capture(const Outlet& outlet, const Send& send) const;
    wire::DatagramAddress wire_address(const Outlet& outlet,
                                       const transport::TransmitRun& run) const;
    SocketAddress target(const Outlet& outlet, const transport::TransmitRun& run) const;

    std::shared_ptr<Network> network_;  // Whose sockets are opened here.
    const LocalAddresses& local_;
    RandomSource& random_;
    std::uint16_t port_;               // Of the peers.
    std::vector<Address> addresses_;   // Never more than it was made for.
    GidPlaces places_{kAddressesMax};  // Where in addresses_.
    // The version of the machine's addresses at which none of ours was lost.
    std::optional<std::uint32_t> none_lost_at_;
    std::uint64_t searches_ = 0;
    bool segmentation_ = true;  // Until the kernel refuses it.
    int open_error_ = 0;        // Why the last socket could not be made.
    std::uint64_t dropped_packets_ = 0;
    std::array<Trouble, kTroublesMax> troubles_{};
    std::size_t trouble_count_ = 0;
    int errors_set_ = -1;  // -1: none.
    cm::Suspects suspects_;

    Capture* capture_;  // Or null.
    std::optional<Disturber> disturber_;
};

}  // namespace feroce::port
