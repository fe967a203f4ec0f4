// Options: what rsetsockopt() sets and a new rsocket starts with. rgetsockopt() tells of them;
// those that say how a connection is built count when it is.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace feroce::rsockets {

struct Options {
    // How a connection is built.
    // A sender waits until the peer has read half a buffer. With the 128 KiB of rdma-core either
    // side waits for the other after every 64 KiB; with more than these they leave the nearer
    // caches.
    std::size_t send_buffer = 1 << 18;
    std::size_t receive_buffer = 1 << 18;
    std::uint32_t send_queue = 384;
    std::uint32_t receive_queue = 384;
    std::uint32_t inline_bytes = 64;
    std::uint32_t mappings = 0;

    // How calls wait. No time: for ever.
    std::chrono::microseconds send_timeout{0};
    std::chrono::microseconds receive_timeout{0};
    // A call polls for so long before it sleeps: as long as a peer needs to read half a buffer, and
    // about what falling asleep and being woken take.
    std::chrono::microseconds polling_time{30};

    bool reuse_address = false;
    bool keep_alive = false;
    bool v6_only = false;
    // Kept for the program, without effect.
    bool no_delay = false;
    bool out_of_band_inline = false;
    linger linger_time{};
    std::chrono::seconds keep_idle{7200};
    std::uint32_t max_segment = 0;
};

// With the values that the files of /etc/rdma/rsocket say, as rdma-core's.
Options default_options();

// Both refuse what they do not know with ENOPROTOOPT, and what has a wrong size with EINVAL.
Result<void> set_option(Options& options, int level, int name, const void* value, socklen_t length);
Result<void> get_option(const Options& options, int level, int name, void* value,
                        socklen_t& length);

}  // namespace feroce::rsockets
