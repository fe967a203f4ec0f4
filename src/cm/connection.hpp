// Connection: one communication id of ours and what the protocol must remember of it, including
// the last MAD, which is sent again when no answer comes or the peer repeats itself. Internal to
// the room but for State.
#pragma once

#include "cm/types.hpp"

namespace feroce::cm {

enum class State : std::uint8_t {
    ReqSent,
    RepReceived,  // The caller has been told and has not called establish yet.
    ReqReceived,  // The caller has been told and has not answered yet.
    RepSent,
    Established,
    DreqSent,
    SidrReqSent,
    SidrReqReceived,
    Timewait,  // Over; repeated messages are still answered, and the id is taken.
    Closed     // Over; only the caller still holds the id.
};

struct Connection {
    CommId local_id{};
    CommId remote_id{};  // 0 until known.
    State state = State::Closed;
    bool sidr = false;
    bool released = false;       // The caller has let go: no more events.
    bool was_connected = false;  // Disconnected was due, so a TimewaitExit is.
    bool bound = false;          // The sink has been told that the peer counts on it.
    bool in_backlog = false;     // Counted by its listener.
    bool is_feroce = false;      // The peer answers ALIVE.
    std::uint8_t asked = 0;      // How often since the peer was heard.
    Instant heard{};             // When that was. These six are valid while Established.
    std::uint64_t packets = 0;   // What the sink counted then.
    std::uint8_t hurried = 0;    // Of those asked: in a hurry, since the network doubts the peer.
    bool refused_again = false;  // It did so once more after the first of them.
    Instant next_doubt{};        // What it says before that is not listened to.
    Qpn local_qpn{};             // Ours, as told to the peer; 0 before that.
    Qpn remote_qpn{};            // 0 until known.
    ListenerId listener{};
    Path path{};
    ServiceId service{};
    std::uint64_t transaction = 0;  // Of the request under way; answers repeat it.
    Duration response_timeout{};
    std::uint8_t max_retries = 0;
    std::uint8_t retries_left = 0;
    Instant deadline = kNever;      // Change by ConnectionTable::set_deadline only.
    wire::CmAttribute last_sent{};  // Not an attribute if nothing was sent yet.
    wire::MadBytes last_mad{};      // Valid with last_sent.

    bool is_live() const {  // The peer's queue pair is bound to this connection.
        return !sidr && state != State::Timewait && state != State::Closed;
    }
};

// Timeouts on the wire are exponents of 4.096 us. What a peer may ask for is cut at 69 s, or one
// REQ could hold an entry for hours.
inline constexpr std::uint8_t kMaxTimeoutExponent = 24;
constexpr Duration timeout_of(std::uint8_t exponent) {
    const auto bounded = exponent < kMaxTimeoutExponent ? exponent : kMaxTimeoutExponent;
    return std::chrono::nanoseconds(std::int64_t{4096} << bounded);
}

}  // namespace feroce::cm
