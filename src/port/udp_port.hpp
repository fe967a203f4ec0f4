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

#include "device/host.hpp"
#include "port/fd.hpp"
#include "port/group_membership.hpp"
#include "port/request_receiver.hpp"
#include "port/udp_receiver.hpp"
#include "port/udp_sender.hpp"

namespace feroce::port {

class UdpPort final : public device::HostPort {
public:
    struct Settings {
        RandomSource& random;
        std::uint16_t port;
        Meddlers meddlers;
        std::string devices;  // The interfaces on which multicast groups are joined; empty: all.
    };
    static Result<std::unique_ptr<device::HostPort>> open(GroupMembership membership,
                                                          Settings settings);

    std::uint8_t slot() const override { return membership_.slot(); }
    bool poll(Instant now, device::Engine& engine) override;
    void arm() override;
    void disarm() override;
    bool wait(Instant until) override;
    void wake() override;
    int requests_fd() override;
    bool poll_requests(Instant now, device::Engine& engine) override;
    bool interfaces_changed() override;

    void transmit(std::span<const transport::TransmitRun> runs) override;
    bool join_group(const Gid& group) override;
    void leave_group(const Gid& group) override;

private:
    UdpPort(GroupMembership membership, Settings settings);
    bool open_waiting();
    void set_armed(bool armed);
    bool change_membership(const Gid& group, std::uint32_t interface, bool join);

    GroupMembership membership_;
    std::string devices_;
    UdpSender sender_;
    UdpReceiver v4_;
    UdpReceiver v6_;
    Capture* capture_;
    std::optional<RequestReceiver> requests_;  // Once somebody asked for requests.
    // The family that had the last packet; the other is polled less often.
    bool v6_is_hot_ = false;
    std::uint32_t cold_polls_ = 0;
    std::atomic<bool> look_at_both_{false};  // Set by wait(): whichever family ended it.

    Fd arrivals_;           // An epoll set of the two sockets, so that arming is one system call.
    Fd waiting_;            // The epoll set of arrivals_, doorbell_ and the group's listener.
    Fd doorbell_;           // eventfd behind wake().
    Fd changes_;            // Netlink: the news of addresses and links.
    bool changed_ = false;  // The waiting thread's own.
    std::atomic<bool> rung_{false};  // A wake() not yet seen; saves needless writes.
};

}  // namespace feroce::port
