// UdpPort: one slot of the shared UDP port. Receives in batches (a UDP_GRO datagram holds the
// segments of one send), sends through UdpSender, and sleeps in epoll_wait for the driver's thread.
// All but wait() and wake() under the shard's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/host.hpp"
#include "port/group_membership.hpp"
#include "port/parcel_receiver.hpp"
#include "port/port_waiter.hpp"
#include "port/request_receiver.hpp"
#include "port/udp_receiver.hpp"
#include "port/udp_sender.hpp"

namespace feroce::port {

class UdpPort final : public host::HostPort {
public:
    struct Settings {
        std::shared_ptr<Network> network;
        RandomSource& random;
        std::uint16_t port;
        Meddlers meddlers;
        std::string devices;  // The interfaces on which multicast groups are joined; empty: all.
    };
    static Result<std::unique_ptr<host::HostPort>> open(GroupMembership membership,
                                                        Settings settings);

    std::uint8_t slot() const override { return membership_.slot(); }
    bool poll(Instant now, device::Engine& engine) override;
    bool poll_all(Instant now, device::Engine& engine) override;
    void arm() override { waiter_.arm(); }
    void disarm(bool for_long) override { waiter_.disarm(for_long); }
    bool wait(Instant until) override;
    void wake() override { waiter_.wake(); }
    int requests_fd() override;
    bool poll_requests(Instant now, device::Engine& engine) override;
    bool interfaces_changed() override { return waiter_.interfaces_changed(); }

    void transmit(std::span<const transport::TransmitRun> runs) override;
    int send_error(const transport::Path& path) const override { return sender_.send_error(path); }
    bool join_group(const Gid& group) override;
    void leave_group(const Gid& group) override;
    void tell_destinations() override;
    bool hand_over(const device::Datagram& packet) override {
        return membership_.group().hand_over(packet);
    }

private:
    UdpPort(GroupMembership membership, Settings settings);
    bool open_waiting();
    bool change_membership(const Gid& group, std::uint32_t interface, bool join);

    std::vector<host::Interface> interfaces() const;

    GroupMembership membership_;
    std::shared_ptr<Network> network_;
    std::string devices_;
    UdpSender sender_;
    UdpReceiver v4_;
    UdpReceiver v6_;
    HandOverReceiver handed_over_;
    Capture* capture_;
    std::optional<RequestReceiver> requests_;  // Once somebody asked for requests.
    // The family that had the last packet; the other is polled less often.
    bool v6_is_hot_ = false;
    std::uint32_t cold_polls_ = 0;
    // Set by wait(): what ended it. Relaxed: a hint, and the lock that follows orders the rest.
    static constexpr std::uint8_t kLookAtBoth = 1;
    static constexpr std::uint8_t kLookAtHandedOver = 2;
    std::atomic<std::uint8_t> look_{0};

    PortWaiter waiter_;
};

}  // namespace feroce::port
