// QpHot: the data of a queue pair that packets and posts touch. QueuePair has the behaviour.
//
// With many queue pairs each packet finds its own cold, and waits for every cache line that it
// touches. So these words lie together at the front of the queue pair, ordered by use and not by
// topic: one line to find the way, one with the attributes that packets ask for, then the rest. The
// assertions below keep it so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/cache.hpp"
#include "base/ids.hpp"
#include "base/time.hpp"
#include "transport/types.hpp"

namespace feroce::transport {

class CompletionSink;
class Machine;
class ReceiveQueue;
class SendWindow;
struct Services;

struct QpInit {
    QpType type = QpType::Rc;
    PdId pd;
    CompletionSink* send_cq = nullptr;     // Null only for an XRC target.
    CompletionSink* receive_cq = nullptr;  // Null only for XRC.
    ReceiveQueue* srq = nullptr;
    QpCapabilities capabilities;
    bool signal_all = false;
    std::uint32_t xrc_domain = 0;
    // Largest IB MTU of the port: the limit of a datagram, which no modify sets. Of the others it
    // is the path MTU until RTR.
    std::uint32_t datagram_mtu = 1024;
    void* owner = nullptr;  // The device's user: handed back with events.
};

// What device/ keeps of a queue pair. It lies here for the sake of the cache line; nothing in
// transport/ reads or writes it.
struct DeviceRecord {
    std::uint32_t timer_position = 0;  // See device/timers.hpp.
    bool is_ready = false;             // In the engine's ready list.
    bool waits_for_window = false;     // Among the waiters of its window.
    // UDP source port of the peer, 0 until the first good packet; then no other is believed.
    std::uint16_t peer_source_port = 0;
    Instant last_congestion_notice{};  // When we last told the peer that its packets were marked.
};

struct QpHot {
    // The first line.
    Qpn qpn;
    std::uint32_t first_reason = 0;  // 0: none.
    DeviceRecord device;
    Machine* machine = nullptr;
    Services* services = nullptr;
    ReceiveQueue* receive_queue = nullptr;  // Own or shared.
    SendWindow* window = nullptr;           // Null before RTR, and where none is used.
    std::uint64_t packets_received = 0;
    // The second line, and what packets do not ask for behind it.
    QpAttributes attributes;
    bool completion_lost = false;
    bool flush_waits = false;  // In ERR, until no delivery is left.
    std::uint32_t completions_held = 0;
    std::uint32_t deliveries = 0;  // Copies into far memory that are not over.
    std::uint64_t packets_sent = 0;
    QpInit init;
};

static_assert(std::is_standard_layout_v<QpHot>);  // Else offsets would mean nothing.
static_assert(sizeof(DeviceRecord) == 16);
static_assert(offsetof(QpHot, attributes) == kCacheLine);

}  // namespace feroce::transport
