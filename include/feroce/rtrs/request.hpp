// A request of a client while it is in flight. It lives in its caller, usually as the awaitable in
// the caller's coroutine, so that no request allocates; the session links it into its lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "feroce/error.hpp"
#include "feroce/list.hpp"
#include "feroce/time.hpp"

namespace feroce::rtrs {

enum class Direction : std::uint8_t { Write, Read };  // As the client sees it.

// Waits for the right to use a chunk of the server.
struct PermitWaiter : rdma::ListNode {
    std::uint16_t permit = 0;  // Valid once it has been granted.
};

using Segment = std::span<std::byte>;
using ConstSegment = std::span<const std::byte>;

// How a request ended: how many bytes of data it moved, or the error. A read may move fewer than
// asked for if the server's handler says so; the rest of the buffer is zero then.
class [[nodiscard]] Transferred : public rdma::Result<std::size_t> {
public:
    using Result::Result;
    operator rdma::Result<>() const { return *this ? rdma::Result<>() : rdma::Result<>(error()); }
};

struct Request : PermitWaiter {
    enum class State : std::uint8_t { Idle, WaitsForPermit, WaitsForPath, InFlight, InWreck, Done };

    Direction direction = Direction::Write;
    bool service = false;                           // Travels on the service connection.
    unsigned processor = 0;                         // That its caller was on.
    std::span<const std::byte> message;             // These three must stay until done.
    std::span<const Segment> read_into = {};        // For reads,
    std::span<const ConstSegment> write_from = {};  // for writes.
    Segment only_into;                              // Where there is one segment only, it is here.
    ConstSegment only_from;

    void set_data(std::span<const Segment> into) {
        direction = Direction::Read;
        read_into = into;
    }
    void set_data(std::span<const ConstSegment> from) {
        direction = Direction::Write;
        write_from = from;
    }
    void set_data(Segment into) {
        only_into = into;
        set_data(std::span<const Segment>(&only_into, 1));
    }
    void set_data(ConstSegment from) {
        only_from = from;
        set_data(std::span<const ConstSegment>(&only_from, 1));
    }

    // Called from the loop when it is done; may destroy the request.
    void (*done)(Request&) = nullptr;

    // The session's.
    State state = State::Idle;
    int error = 0;  // An errno; valid if done.
    const char* why = "";
    std::string text;       // What the server says about an error; empty: nothing.
    std::size_t moved = 0;  // Bytes of data; valid if done without an error.
    bool limited = false;   // It may be given up: whether the device still reads its data matters.
    unsigned losses = 0;    // Paths that failed by themselves while it was in flight there.
    std::uint64_t position = 0;  // Of its work request among those of its connection, in flight.
    bool staged = false;         // The data went, or will come, through the session's own memory.
    std::uint64_t sequence = 0;  // Kept when it is sent again.
    std::uint64_t data_size = 0;
    Instant submitted{};

    std::size_t segment_count() const {
        return direction == Direction::Read ? read_into.size() : write_from.size();
    }
    ConstSegment segment(std::size_t i) const {
        return direction == Direction::Read ? ConstSegment(read_into[i]) : write_from[i];
    }
};

}  // namespace feroce::rtrs
