// Outlet: a socket of our own that packets from one of our addresses leave through, never connected
// and with DF set. What packets need beyond an address goes with them as control messages, some
// 70 ns each; what has been wanted often enough in a row is set on the socket instead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/gid.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "port/fd.hpp"
#include "transport/transmit_batch.hpp"

namespace feroce::port {

inline constexpr std::uint8_t kDefaultHopLimit = 64;

// How the kernel shall send something.
struct Manner {
    std::uint16_t segment_size = 0;  // 0: not segmented.
    std::uint8_t hop_limit = kDefaultHopLimit;
    std::uint8_t traffic_class = 0;

    friend bool operator==(const Manner&, const Manner&) = default;
};

Manner manner_of(const transport::TransmitRun& run, bool segmented);

class Outlet {
public:
    Outlet() = default;  // Not open.
    // With the kernel's errno if it refuses. The scope is for link-local and multicast
    // destinations.
    static Result<Outlet> open(const Gid& address, std::uint32_t scope, RandomSource& random);

    bool is_open() const { return fd_.valid(); }
    int fd() const { return fd_.get(); }
    std::uint16_t port() const { return port_; }
    std::uint32_t scope() const { return scope_; }
    void set_scope(std::uint32_t scope);  // It was not known when the socket was opened.
    bool is_v4() const { return v4_; }

    // How the socket sends what brings no control messages.
    const Manner& manner() const { return manner_; }
    // Would that be right for `size` bytes?
    bool suits(const Manner& wanted, std::size_t size) const;
    // Tells what is about to be sent. After many of the same kind the socket suits them.
    void expect(const Manner& wanted, std::size_t size);
    // Segments are no longer the socket's: true if they were.
    bool forgo_segments();

private:
    void adopt(const Manner& wanted);

    Fd fd_;
    std::uint16_t port_ = 0;
    std::uint32_t scope_ = 0;
    bool v4_ = true;
    Manner manner_;
    Manner wanted_;  // Of late, and how often in a row.
    int times_ = 0;
};

}  // namespace feroce::port
