// What can be set of a session and of a server. The defaults are for two peers of ours; towards the
// Linux kernel's rtrs the kernel's own heartbeat is used unless one is given here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "feroce/time.hpp"

namespace feroce::rdma {
class Loop;
}

namespace feroce::rtrs {

inline constexpr std::uint16_t kDefaultPort = 1234;

// Which path a request takes.
enum class PathPolicy : std::uint8_t {
    RoundRobin,   // Every path in its turn.
    MinInflight,  // The path with the fewest requests in flight.
    MinLatency,   // The path whose last heartbeat came back soonest.
    // One path until it has a batch more in flight than another: small requests are cheap in large
    // batches, which the other policies cut into as many pieces as there are paths.
    FillFirst,
};

struct HeartbeatOptions {
    Duration interval = std::chrono::milliseconds(200);
    // Silent intervals that are forgiven after one that went unanswered. With 1 a cut is noticed at
    // most three intervals after it happened; the kernel uses 5 s and 5.
    unsigned misses = 1;
};

inline constexpr HeartbeatOptions kKernelHeartbeat{std::chrono::seconds(5), 5};

struct ReconnectOptions {
    Duration first = std::chrono::milliseconds(20);  // Each later wait is about twice as long,
    Duration longest = std::chrono::seconds(2);      // up to this.
    int attempts = -1;                               // -1: for ever; 0: never.
};

// Addresses, or names of machines, which are resolved at every attempt (feroce/resolve.hpp).
// Without a source the routing table decides.
struct PathAddress {
    std::string destination;
    std::string source = {};

    friend bool operator==(const PathAddress&, const PathAddress&) = default;
};

enum class LinkEvent : std::uint8_t {
    PathUp,
    PathDown,
    Disconnected,  // The last path went.
    Reconnected,   // The first path is back after that.
};

struct SessionOptions {
    std::uint16_t port = kDefaultPort;
    // For requests, in each path, beside the service connection. A request takes that of the
    // processor its caller is on. 0: one a processor of this process, at most 8.
    std::uint16_t connections = 0;
    PathPolicy policy = PathPolicy::MinInflight;
    Duration connect_timeout = std::chrono::seconds(5);
    std::optional<HeartbeatOptions> heartbeat = {};
    ReconnectOptions reconnect = {};
    // How long requests wait while no path is up. Zero: they fail at once, as the kernel's do.
    Duration queue_if_no_path = std::chrono::seconds(30);
    // How often a request is sent while each time its path fails by itself: one that takes the
    // server or its paths down must not do so for ever. 0: without limit.
    unsigned request_attempts = 16;
    // Offer servers of ours what makes failover safe. False: speak exactly as the kernel's client.
    bool extension = true;
    // Called from the loop. `path` is its place in the order of adding.
    std::function<void(LinkEvent event, std::size_t path)> on_link = {};
};

// The client that comes in by a path.
struct Visitor {
    std::uint64_t session = 0;  // As ServerRequest::session() tells; never used again.
    std::string name;           // Of the session, as its client calls it.
    std::string peer;           // The client's address, without port.
    // The session as its client names it on the wire: the same when it comes back after its session
    // was forgotten here.
    std::array<std::byte, 16> uuid{};
    // The path has been connected before: here, or to a server before this one.
    bool returns = false;
};

struct ServerOptions {
    std::string address = {};  // Or a name of this machine; empty: all of it.
    std::uint16_t port = kDefaultPort;
    std::uint16_t queue_depth = 512;       // Requests of a session in flight at a time.
    std::uint32_t chunk_size = 128 << 10;  // Data, message and header of one request.
    std::uint32_t header_size = 4096;      // The part of a chunk that is not for data.
    // Takes the client's right to write a chunk away while its request is worked on. Costs a
    // round through the queue pair per request.
    bool always_invalidate = false;
    std::optional<HeartbeatOptions> heartbeat = {};
    std::size_t max_sessions = 64;
    std::size_t max_bytes = std::size_t{4} << 30;  // Of all chunks.
    // How long a session without paths is remembered: a request that was executed is known to a
    // client that comes back within this time. Sessions of the kernel end with their last path.
    Duration session_linger = std::chrono::seconds(60);
    // How long a handler may keep a request. Then a client of ours gets ETIMEDOUT for it, it is
    // counted and told on stderr; the handler keeps the chunk, and may answer late. The kernel's
    // client cannot be told without giving it the chunk back: there it is only counted and told.
    // Zero: no limit.
    Duration answer_within = std::chrono::minutes(2);
    // Loops of other threads, over which the sessions are spread, each staying with one. They run
    // until the server has ended. Empty: all are served on the server's own loop.
    std::vector<rdma::Loop*> workers = {};
    // Asked before a path is taken: 0, or an errno and it is closed. This and the next are called
    // from the session's loop.
    std::function<int(const Visitor& visitor)> on_path = {};
    // A session that on_path saw is forgotten: nobody comes back to it.
    std::function<void(std::uint64_t session)> on_session_end = {};
};

}  // namespace feroce::rtrs
