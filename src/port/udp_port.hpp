// UdpPort: one slot of the shared UDP port. Receives in batches (a UDP_GRO datagram holds the
// segments of one send), sends through UdpSender, and sleeps in epoll_wait for the driver's thread.
// Packets between members of the port group go by rings in shared memory instead, once a ring is
// agreed on (RingSender, RingReceiver).
// All but wait(), wake(), interfaces_changed() and has_suspects() under the shard's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/host.hpp"
#include "port/error_news.hpp"
#include "port/group_membership.hpp"
#include "port/local_addresses.hpp"
#include "port/parcel_receiver.hpp"
#include "port/port_waiter.hpp"
#include "port/request_receiver.hpp"
#include "port/ring_receiver.hpp"
#include "port/ring_sender.hpp"
#include "port/udp_receiver.hpp"
#include "port/udp_sender.hpp"

namespace feroce::port {

class UdpPort final : public host::HostPort, private RingMessageSink {
public:
    struct Settings {
        std::shared_ptr<Network> network;
        RandomSource& random;
        std::uint16_t port;
        Meddlers meddlers;
        std::string devices;  // The interfaces on which multicast groups are joined; empty: all.
        bool rings;           // Unless meddlers want to see every packet.
        RingBudget& budget;
    };
    static Result<std::unique_ptr<host::HostPort>> open(GroupMembership membership,
                                                        Settings settings);

    SlotNumber slot() const override { return membership_.slot(); }
    bool poll(Instant now, device::Engine& engine) override;
    bool poll_all(Instant now, device::Engine& engine) override;
    void arm() override;
    void disarm(bool for_long) override;
    bool wait(Instant until) override;
    void wake() override { waiter_.wake(); }
    int requests_fd() override;
    bool poll_requests(Instant now, device::Engine& engine) override;
    bool interfaces_changed() override;
    bool has_suspects() override;
    cm::Suspects take_suspects() override;

    void transmit(std::span<const transport::TransmitRun> runs) override;
    bool has_room(const transport::Path& path, SlotNumber slot, std::size_t size) override;
    ByteSpan place(const transport::Path& path, SlotNumber slot, std::size_t size,
                   std::uint32_t packets) override;
    void take_back() override { ring_sender_.take_back(); }
    std::optional<Unread> unread(SlotNumber slot) override { return ring_sender_.unread(slot); }
    bool inherits(const transport::Path& path, SlotNumber slot) override {
        return ring_sender_.inherits(path, slot);
    }
    bool leave_behind(const transport::Path& path, SlotNumber slot,
                      transport::AckView ack) override {
        return ring_sender_.leave_behind(path, slot, ack);
    }
    void take_legacies_back() override { ring_sender_.take_legacies_back(); }
    int send_error(const transport::Path& path) const override { return sender_.send_error(path); }
    bool join_group(const Gid& group) override;
    void leave_group(const Gid& group) override;
    void tell_destinations() override;
    bool hand_over(const device::Datagram& packet) override {
        return membership_.group().hand_over(packet);
    }
    bool goes_by_ring(const transport::Path& path, SlotNumber slot) const override {
        return ring_sender_.reaches(path, slot);
    }
    std::uint64_t unsent_packets() const override { return sender_.dropped_packets(); }
    std::uint64_t ring_changes() const override { return ring_sender_.changes(); }
    device::RingCounts ring_counts() const override {
        return {ring_sender_.packets_sent(), ring_sender_.packets_overflowed(),
                ring_sender_.memory(), ring_sender_.refused()};
    }

private:
    UdpPort(GroupMembership membership, Settings settings);
    static bool uses_rings(const Settings& settings);
    bool open_waiting();
    bool change_membership(const Gid& group, std::uint32_t interface, bool join);

    std::vector<host::Interface> interfaces(std::string_view only) const;
    void take(Instant now, device::Engine& engine, const RingMessage& message,
              Fd attached) override;
    void hold(std::uint32_t slot);  // The tie to a member that has a ring with us.
    void learn_addresses();
    void send(std::span<const transport::TransmitRun> runs);
    void transmit_rest(transport::TransmitRun run, std::uint32_t sent);
    bool poll_rings(Instant now, device::Engine& engine, bool somebody_ended);
    void look_for_deaths(bool somebody_ended);
    bool is_watcher() const { return membership_.group().watcher() == slot(); }
    bool poll_sockets(Instant now, device::Engine& engine, std::uint8_t look);
    void drain_sockets(Instant now, device::Engine& engine);

    GroupMembership membership_;
    std::shared_ptr<Network> network_;
    std::string devices_;
    LocalAddresses addresses_;
    UdpSender sender_;
    UdpReceiver v4_;
    UdpReceiver v6_;
    HandOverReceiver handed_over_;
    Capture* capture_;
    RingSender ring_sender_;
    RingReceiver ring_receiver_;
    Instant last_ring_packet_{};
    Instant last_socket_look_{};
    Instant next_sweep_{};
    std::optional<RequestReceiver> requests_;  // Once somebody asked for requests.
    // The family that had the last packet; the other is polled less often.
    bool v6_is_hot_ = false;
    std::uint32_t cold_polls_ = 0;
    // Set by wait(): what ended it. Relaxed: a hint, and the lock that follows orders the rest.
    static constexpr std::uint8_t kLookAtBoth = 1;
    static constexpr std::uint8_t kLookAtHandedOver = 2;
    static constexpr std::uint8_t kLookForDeparted = 4;
    std::atomic<std::uint8_t> look_{0};

    PortWaiter waiter_;
    ErrorNews error_news_;
    Ties& ties_;           // To members that share rings with this slot, and to the nearest.
    Instant next_look_{};  // For deaths, by the clock. The waiting thread's own.
    // One is missing, and the thread is woken to make it. The wake-up orders it.
    std::atomic<bool> tie_missing_{false};
};

}  // namespace feroce::port
