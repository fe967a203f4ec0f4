// GuestPort: the port of a process whose user does not own UDP port 4791. Receives what the owner's
// processes relay (relay_server.hpp), sends from sockets of its own. When the relay dies or is
// stopped, it takes its seat again at another process of the owner, or founds a group itself if
// there is none, and stays its own guest there; what was lost meanwhile is sent again as after any
// loss.
//
// All but wait(), wake() and has_suspects() under the shard's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "host/host.hpp"
#include "port/error_news.hpp"
#include "port/parcel_receiver.hpp"
#include "port/port_entry.hpp"
#include "port/port_waiter.hpp"
#include "port/relay_watch.hpp"
#include "port/request_receiver.hpp"
#include "port/seat_tokens.hpp"
#include "port/udp_sender.hpp"

namespace feroce::port {

class GuestPort final : public host::HostPort, private ForkGate::Holder {
public:
    struct Settings {
        std::shared_ptr<Network> network;
        RandomSource& random;
        std::uint16_t port;
        Meddlers meddlers;
        // A seat with the slot of that one again, and the group if it is now this process's own.
        std::function<Result<PortEntry>(FormerSeat before)> seat_again;
        std::shared_ptr<SeatTokens> tokens = std::make_shared<SeatTokens>();
        std::shared_ptr<ForkGate> gate = std::make_shared<ForkGate>();
    };
    ~GuestPort() override;
    static Result<std::unique_ptr<host::HostPort>> open(RelaySeat seat, Settings settings);

    SlotNumber slot() const override { return seat_.slot; }
    bool poll(Instant now, device::Engine& engine) override;
    bool poll_all(Instant now, device::Engine& engine) override { return poll(now, engine); }
    void arm() override { waiter_.arm(); }
    void disarm(bool for_long) override { waiter_.disarm(for_long); }
    bool wait(Instant until) override;
    void wake() override { waiter_.wake(); }
    int requests_fd() override;
    bool poll_requests(Instant now, device::Engine& engine) override;
    void queue_pairs_changed(const device::Engine& engine) override;
    bool interfaces_changed() override;
    bool has_suspects() override;
    cm::Suspects take_suspects() override;

    void transmit(std::span<const transport::TransmitRun> runs) override;
    std::uint64_t unsent_packets() const override { return sender_.dropped_packets(); }
    int send_error(const transport::Path& path) const override { return sender_.send_error(path); }
    // The relay carries what is addressed to a slot, and groups are not.
    bool join_group(const Gid&) override { return false; }
    void leave_group(const Gid&) override {}

private:
    // Lost: told by poll() to wait(). Found: told by wait() to poll(), with a new connection behind
    // the same fd. The exchange orders nothing else, but is seq_cst for simplicity: it is rare.
    enum class Link : std::uint8_t { Up, Lost, Found };
    // Unwatched: wait() sleeps without looking after the relay; traffic wakes it. Else its next
    // look finds whether there was some. seq_cst for simplicity: it changes ten times a second.
    enum class Traffic : std::uint8_t { Unwatched, None, Some };

    GuestPort(RelaySeat seat, Settings settings);
    void abandon() override { seat_.connection.reset(); }
    bool sit_down_again();  // False if there is no seat, or no memory for it.
    bool take_seat();
    bool use_connection(const RelaySeat& seat);
    void learn_addresses();
    void note_traffic();
    void look_after_relay();
    void step_after_relay();
    void read_requests_at_home();

    std::shared_ptr<ForkGate> gate_;  // By which a forked child closes the connection.
    RelaySeat seat_;
    std::function<Result<PortEntry>(FormerSeat)> seat_again_;
    std::shared_ptr<SeatTokens> tokens_;  // With that of seat_.
    std::shared_ptr<Network> network_;
    LocalAddresses addresses_;
    UdpSender sender_;
    Capture* capture_;
    RelayReceiver receiver_;
    std::atomic<Link> link_{Link::Up};
    std::atomic<Traffic> traffic_{Traffic::None};
    std::atomic<Duration> idle_gap_{Duration::zero()};  // See RelayWatch. Alone, hence relaxed.
    PortWaiter waiter_;
    ErrorNews error_news_;
    RelayWatch watch_;  // The waiting thread's own.

    std::mutex mutex_;  // Guards the rest, which wait() changes. Only wait() changes home_.
    std::shared_ptr<PortGroup> home_;  // Set if this process serves itself.
    Fd requests_set_;                  // An epoll set, empty while others read the requests.
    std::optional<RequestReceiver> requests_;
};

}  // namespace feroce::port
