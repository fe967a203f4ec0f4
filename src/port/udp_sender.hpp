// UdpSender: seals runs and hands them to the kernel. Sends from Outlets, which are never
// connected and set DF, because only then is the IPv4 id predictable (0, or 0,1,2... for the
// segments of one send), which the ICRC covers. One source port never serves two slots of a peer at
// once, or a NIC's receive offload could merge their packets. Under its shard's lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/gid.hpp"
#include "base/random.hpp"
#include "port/address.hpp"
#include "port/capture.hpp"
#include "port/faults.hpp"
#include "port/network.hpp"
#include "port/outlet.hpp"
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
    UdpSender(std::shared_ptr<Network> network, RandomSource& random, std::uint16_t port,
              const Meddlers& meddlers = {})
        : network_(std::move(network)), random_(random), port_(port), meddlers_(meddlers) {}
    void forgo_segmentation() { segmentation_ = false; }  // As if the kernel had refused it.

    void transmit(std::span<const transport::TransmitRun> runs);
    std::uint64_t dropped_packets() const { return dropped_packets_; }
    // The errno with which the last packets of this path were refused; 0 if they were not.
    int send_error(const transport::Path& path) const;
    void forget_refusals() { trouble_count_ = 0; }

private:
    static constexpr std::size_t kSocketsPerAddress = 4;

    struct Address {
        Gid gid;
        std::uint32_t scope = 0;  // Interface index, for link-local and multicast destinations.
        std::array<Outlet, kSocketsPerAddress> outlets;
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
    Outlet* outlet_for(Address* address, const transport::TransmitRun& run);
    void seal(const Outlet& outlet, const transport::TransmitRun& run, bool segmented);
    void send_through(Outlet& outlet, std::span<const transport::TransmitRun> runs);
    void send_batch(Outlet& outlet, std::span<const transport::TransmitRun> runs);
    bool send_plainly(Outlet& outlet, const transport::TransmitRun& run, const Manner& wanted);
    void send_singly(const Outlet& outlet, const transport::TransmitRun& run);
    void send_faultily(const Outlet& outlet, const transport::TransmitRun& run);
    void send_packet(const Outlet& outlet, const transport::TransmitRun& run, ByteSpan packet);
    bool send_one(const Outlet& outlet, const transport::TransmitRun& run, ByteSpan packet) const;
    void capture(const Outlet& outlet, const transport::TransmitRun& run, bool segmented);
    wire::DatagramAddress wire_address(const Outlet& outlet,
                                       const transport::TransmitRun& run) const;
    SocketAddress target(const Outlet& outlet, const transport::TransmitRun& run) const;

    std::shared_ptr<Network> network_;  // Whose sockets are opened here.
    RandomSource& random_;
    std::uint16_t port_;  // Of the peers.
    std::vector<Address> addresses_;
    bool segmentation_ = true;  // Until the kernel refuses it.
    int open_error_ = 0;        // Why the last socket could not be made.
    std::uint64_t dropped_packets_ = 0;
    std::array<Trouble, kTroublesMax> troubles_{};
    std::size_t trouble_count_ = 0;

    // A packet that fault injection sends later than its turn.
    struct Held {
        transport::TransmitRun run;  // Its bytes are not valid any more; these are:
        std::vector<std::byte> bytes;
    };
    Meddlers meddlers_;
    std::vector<Held> held_;
};

}  // namespace feroce::port
