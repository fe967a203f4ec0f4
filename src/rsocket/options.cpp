#include "rsocket/options.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include "rsocket/stream.hpp"

namespace feroce::rsockets {
namespace {

constexpr std::uint32_t kLeastQueue = 16;
constexpr std::uint32_t kMostQueue = 8192;
constexpr std::size_t kLeastBuffer = 8192;
constexpr std::size_t kMostBuffer = std::size_t{1} << 30;
constexpr std::size_t kPage = 4096;
// Some 68 years: the clock can count so far.
constexpr std::chrono::seconds kMostTimeout{std::numeric_limits<std::int32_t>::max()};

std::size_t buffer_size(std::uint64_t wanted) {
    const std::uint64_t size = std::clamp<std::uint64_t>(wanted, kLeastBuffer, kMostBuffer);
    return (size + kPage - 1) / kPage * kPage;
}

std::uint32_t queue_size(std::uint32_t wanted) {
    return std::clamp(wanted, kLeastQueue, kMostQueue);
}

// A file of one number, as an administrator leaves it for rdma-core's rsockets too.
std::optional<std::uint32_t> setting(const char* name) {
    const std::string path = std::string("/etc/rdma/rsocket/") + name;
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
    unsigned value = 0;
    if (file == nullptr || std::fscanf(file.get(), "%u", &value) != 1) return std::nullopt;
    return value;
}

// An option whose value is an int. Either function may be absent: it then cannot be done.
struct Row {
    int level;
    int name;
    void (*set)(Options&, std::uint32_t);
    std::uint32_t (*get)(const Options&);
};

using std::uint32_t;
// As the kernel's sockets, buffers get twice what was asked for, and tell so.
constexpr std::array kRows{
    Row{SOL_SOCKET, SO_REUSEADDR, [](Options& o, uint32_t v) { o.reuse_address = v != 0; },
        [](const Options& o) { return uint32_t{o.reuse_address}; }},
    Row{SOL_SOCKET, SO_RCVBUF,
        [](Options& o, uint32_t v) { o.receive_buffer = buffer_size(std::uint64_t{v} * 2); },
        [](const Options& o) { return static_cast<uint32_t>(o.receive_buffer); }},
    Row{SOL_SOCKET, SO_SNDBUF,
        [](Options& o, uint32_t v) { o.send_buffer = buffer_size(std::uint64_t{v} * 2); },
        [](const Options& o) { return static_cast<uint32_t>(o.send_buffer); }},
    Row{SOL_SOCKET, SO_KEEPALIVE, [](Options& o, uint32_t v) { o.keep_alive = v != 0; },
        [](const Options& o) { return uint32_t{o.keep_alive}; }},
    Row{SOL_SOCKET, SO_OOBINLINE, [](Options& o, uint32_t v) { o.out_of_band_inline = v != 0; },
        [](const Options& o) { return uint32_t{o.out_of_band_inline}; }},
    Row{SOL_SOCKET, SO_TYPE, nullptr, [](const Options&) { return uint32_t{SOCK_STREAM}; }},
    Row{IPPROTO_TCP, TCP_NODELAY, [](Options& o, uint32_t v) { o.no_delay = v != 0; },
        [](const Options& o) { return uint32_t{o.no_delay}; }},
    Row{IPPROTO_TCP, TCP_KEEPIDLE,
        [](Options& o, uint32_t v) { o.keep_idle = std::chrono::seconds(std::max(v, 1U)); },
        [](const Options& o) { return static_cast<uint32_t>(o.keep_idle.count()); }},
    // How often and how long to ask is the queue pair's to know.
    Row{IPPROTO_TCP, TCP_KEEPINTVL, [](Options&, uint32_t) {}, [](const Options&) { return 1U; }},
    Row{IPPROTO_TCP, TCP_KEEPCNT, [](Options&, uint32_t) {}, [](const Options&) { return 7U; }},
    Row{IPPROTO_TCP, TCP_MAXSEG, [](Options& o, uint32_t v) { o.max_segment = v; },
        [](const Options& o) { return o.max_segment; }},
    Row{IPPROTO_IPV6, IPV6_V6ONLY, [](Options& o, uint32_t v) { o.v6_only = v != 0; },
        [](const Options& o) { return uint32_t{o.v6_only}; }},
    Row{SOL_RDMA, RDMA_SQSIZE, [](Options& o, uint32_t v) { o.send_queue = queue_size(v); },
        [](const Options& o) { return o.send_queue; }},
    Row{SOL_RDMA, RDMA_RQSIZE, [](Options& o, uint32_t v) { o.receive_queue = queue_size(v); },
        [](const Options& o) { return o.receive_queue; }},
    Row{SOL_RDMA, RDMA_INLINE,
        [](Options& o, uint32_t v) { o.inline_bytes = std::min(v, Stream::kMostCopied); },
        [](const Options& o) { return o.inline_bytes; }},
    Row{SOL_RDMA, RDMA_IOMAPSIZE,
        [](Options& o, uint32_t v) { o.mappings = told_mappings(std::min(v, kMostMappings)); },
        [](const Options& o) { return o.mappings; }},
};

const Row* find_row(int level, int name) {
    const auto it = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) {
        return row.level == level && row.name == name;
    });
    return it == kRows.end() ? nullptr : &*it;
}

std::chrono::microseconds* timeout_of(Options& o, int level, int name) {
    if (level != SOL_SOCKET) return nullptr;
    if (name == SO_RCVTIMEO) return &o.receive_timeout;
    return name == SO_SNDTIMEO ? &o.send_timeout : nullptr;
}

template <class T>
Result<void> give(const T& from, void* to, socklen_t& length) {
    length = std::min(length, socklen_t{sizeof(T)});
    std::memcpy(to, &from, length);
    return {};
}

template <class T>
std::optional<T> taken(const void* value, socklen_t length) {
    if (value == nullptr || length < sizeof(T)) return std::nullopt;
    T out;
    std::memcpy(&out, value, sizeof out);
    return out;
}

constexpr Error kNoValue{EINVAL, "the option's value is missing or too short"};
constexpr Error kNoOption{ENOPROTOOPT, "rsockets do not have this option"};

}  // namespace

Options default_options() {
    Options o;
    if (auto v = setting("mem_default")) o.receive_buffer = buffer_size(*v);
    if (auto v = setting("wmem_default")) o.send_buffer = buffer_size(*v);
    if (auto v = setting("sqsize_default")) o.send_queue = queue_size(*v);
    if (auto v = setting("rqsize_default")) o.receive_queue = queue_size(*v);
    if (auto v = setting("inline_default")) o.inline_bytes = std::min(*v, Stream::kMostCopied);
    if (auto v = setting("iomap_size")) o.mappings = told_mappings(std::min(*v, kMostMappings));
    if (auto v = setting("polling_time")) o.polling_time = std::chrono::microseconds(*v);
    return o;
}

Result<void> set_option(Options& o, int level, int name, const void* value, socklen_t length) {
    if (std::chrono::microseconds* timeout = timeout_of(o, level, name)) {
        const auto time = taken<timeval>(value, length);
        if (!time) return kNoValue;
        if (time->tv_sec < 0 || time->tv_usec < 0 || time->tv_usec >= 1'000'000)
            return Error{EDOM, "the option's value is no time"};
        *timeout = std::min(std::chrono::seconds(time->tv_sec), kMostTimeout) +
                   std::chrono::microseconds(time->tv_usec);
        return {};
    }
    if (level == SOL_SOCKET && name == SO_LINGER) {
        const auto wanted = taken<linger>(value, length);
        if (!wanted) return kNoValue;
        o.linger_time = *wanted;
        return {};
    }
    const Row* row = find_row(level, name);
    if (row == nullptr || row->set == nullptr) return kNoOption;
    const auto number = taken<uint32_t>(value, length);
    if (!number) return kNoValue;
    row->set(o, *number);
    return {};
}

Result<void> get_option(const Options& o, int level, int name, void* value, socklen_t& length) {
    if (value == nullptr) return kNoValue;
    Options copy = o;
    if (const std::chrono::microseconds* timeout = timeout_of(copy, level, name)) {
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*timeout);
        return give(timeval{seconds.count(), (*timeout - seconds).count()}, value, length);
    }
    if (level == SOL_SOCKET && name == SO_LINGER) return give(o.linger_time, value, length);
    const Row* row = find_row(level, name);
    if (row == nullptr || row->get == nullptr) return kNoOption;
    return give(row->get(o), value, length);
}

}  // namespace feroce::rsockets
