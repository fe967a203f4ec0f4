#include "sim/workload/swarm.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/random.hpp"

namespace feroce::sim {

using transport::QpType;
using transport::SendOp;

namespace {

template <class T, std::size_t kSize>
T pick(Prng& random, const std::array<T, kSize>& values) {
    return values[random.below(kSize)];
}

void draw_network(Swarm& s, Prng& random) {
    s.nodes = static_cast<std::uint32_t>(2 + random.below(3));
    s.shards = random.chance(0.25) ? 2 : 1;
    s.ipv6 = random.chance(0.5);
    s.exact_hints = random.chance(0.8);
    s.link.bits_per_second =
        pick<std::uint64_t, 3>(random, {1'000'000'000, 10'000'000'000, 100'000'000'000});
    s.link.delay = std::chrono::microseconds(1 + random.below(50));
    s.link.queue_packets = pick<std::uint32_t, 3>(random, {64, 256, 4096});
}

void draw_operations(Swarm& s, Prng& random) {
    for (SendOp op :
         {SendOp::Send, SendOp::SendImmediate, SendOp::SendInvalidate, SendOp::Write,
          SendOp::WriteImmediate, SendOp::Read, SendOp::CompareSwap, SendOp::FetchAdd}) {
        if (random.chance(0.5)) s.enable(op);
    }
    // Every type of queue pair knows at least this one.
    if (!s.has(SendOp::Send) && !s.has(SendOp::SendImmediate)) s.enable(SendOp::Send);
    s.message_max = pick<std::uint32_t, 6>(random, {64, 301, 1500, 4097, 20'000, 65'536});
    s.depth = static_cast<std::uint32_t>(1 + random.below(s.message_max > 5000 ? 6 : 16));
    s.receives = static_cast<std::uint32_t>(1 + random.below(s.message_max > 5000 ? 6 : 16));
    s.unsignaled = random.chance(0.5) ? 0.5 : 0;
    s.inlined = random.chance(0.3) ? 0.5 : 0;
    s.many_pieces = random.chance(0.5);
    s.one_cq = random.chance(0.7);
}

void draw_faults(Swarm& s, Prng& random) {
    // Cubed, so that light loss, where recovery works hardest, is as common as heavy.
    const auto rate = [&random](double max) {
        const double u = static_cast<double>(random.below(1000)) / 1000;
        return random.chance(0.5) ? max * u * u * u : 0;
    };
    s.faults.loss = random.chance(0.1) ? 0.2 : rate(0.2);
    s.faults.duplicate = rate(0.2);
    s.faults.reorder = rate(0.2);
    s.faults.corrupt = rate(0.1);
    s.faults.reorder_delay = std::chrono::microseconds(5 + random.below(500));
    s.partitions = random.chance(0.3);
    s.pauses = random.chance(0.3);
    s.late_receives = random.chance(0.3);
    s.deregistrations = random.chance(0.2);
    s.destructions = random.chance(0.2);
    s.drains = random.chance(0.3);
    s.resets = random.chance(0.3);
    s.receive_losses = random.chance(0.2);
    s.chaos = std::chrono::milliseconds(20 + random.below(150));
    s.chaos_operations = static_cast<std::uint32_t>(20 + random.below(200));
}

ConnectionPlan draw_connection(const Swarm& s, Prng& random) {
    ConnectionPlan plan;
    plan.a = static_cast<std::uint32_t>(random.below(s.nodes));
    plan.b = static_cast<std::uint32_t>((plan.a + 1 + random.below(s.nodes - 1)) % s.nodes);
    const std::uint64_t type = random.below(10);
    plan.type = type < 6   ? QpType::Rc
                : type < 8 ? QpType::XrcInitiator
                : type < 9 ? QpType::Uc
                           : QpType::Ud;
    plan.shared_receives = plan.type == QpType::Rc && random.chance(0.3);
    plan.options.path_mtu = 256u << random.below(5);
    plan.options.timeout = static_cast<std::uint8_t>(8 + random.below(5));
    plan.options.retry_count = static_cast<std::uint8_t>(3 + random.below(5));
    plan.options.rnr_retry =
        random.chance(0.7) ? std::uint8_t{7} : static_cast<std::uint8_t>(1 + random.below(6));
    plan.options.min_rnr_timer = static_cast<std::uint8_t>(1 + random.below(12));
    plan.options.read_atomic_max = static_cast<std::uint8_t>(1 + random.below(16));
    return plan;
}

// With few PSNs (see base/psn.hpp): messages of up to half as many packets, on a network that keeps
// no packet for as long as it takes to use up the other half.
void shrink(Swarm& s, Prng& random) {
    constexpr std::uint32_t kSmallestMtu = 256;
    s.message_max = Psn::kCount / 2 * kSmallestMtu;
    s.depth = static_cast<std::uint32_t>(1 + random.below(3));
    s.receives = static_cast<std::uint32_t>(1 + random.below(3));
    s.link.bits_per_second = 1'000'000'000;
    s.chaos_operations = std::min(s.chaos_operations, 50U);
    for (ConnectionPlan& plan : s.connections) plan.options.path_mtu = kSmallestMtu;
}

// A window of fixed size is for what is as fast as memory.
void use_rings(Swarm& s) {
    s.link.bits_per_second = 100'000'000'000;
    s.link.queue_packets = 4096;
}

// Few messages, of several pieces each.
void use_pieces(Swarm& s, Prng& random) {
    s.message_max = 2 * mem::FarMemory::kPieceBytes + 70'000;
    s.depth = static_cast<std::uint32_t>(1 + random.below(2));
    s.receives = static_cast<std::uint32_t>(1 + random.below(2));
    s.link.bits_per_second = 100'000'000'000;
    s.chaos_operations = std::min(s.chaos_operations, 30U);
    s.heal_operations = 5;
    if (s.connections.size() > 2) s.connections.resize(2);
    for (ConnectionPlan& plan : s.connections) plan.options.path_mtu = 4096;
}

}  // namespace

bool Swarm::retries_may_run_out(const ConnectionPlan& plan) const {
    const bool cut_off = partitions || pauses;
    // Four rounds in a row that each lose the one packet that matters: never, at this rate.
    const bool lossy = faults.loss + faults.corrupt > 0.005;
    // A slow line whose queue holds more than a timeout's worth loses answers without a fault.
    const bool crowded =
        plan.options.timeout < 11 || (message_max > 5000 && link.bits_per_second < 10'000'000'000);
    return cut_off || lossy || crowded;
}

bool Swarm::queue_outlasts(const ConnectOptions& options) const {
    std::uint64_t packet = 0;
    for (const ConnectionPlan& plan : connections)
        packet = std::max<std::uint64_t>(packet, plan.options.path_mtu);
    constexpr std::uint64_t kHeaders = 100;
    packet = std::min<std::uint64_t>(packet, message_max) + kHeaders;
    // To the switch and from it, a packet and its answer; a UC flood fills them all.
    constexpr std::uint64_t kQueues = 4;
    const double seconds = static_cast<double>(kQueues * packet * link.queue_packets * 8) /
                           static_cast<double>(link.bits_per_second);
    const double timeout = 4.096e-6 * static_cast<double>(std::uint64_t{1} << options.timeout);
    return seconds > timeout * (options.retry_count + 1);
}

// Most keep what follows a gap, some too little for two queue pairs, and some go back. Not drawn
// with the rest: the seeds that were kept would be others.
std::size_t Swarm::held_bytes_max(std::uint32_t node) const {
    if (!keeps) return 0;
    Prng random(seed * 0x9e37'79b9'7f4a'7c15 + node);
    const std::uint64_t kind = random.below(4);
    return kind == 0 ? 0 : kind == 1 ? 900 << 10 : 64 << 20;
}

Swarm Swarm::draw(std::uint64_t seed) {
    Prng random(seed);
    Swarm s;
    s.seed = seed;
    draw_network(s, random);
    draw_operations(s, random);
    draw_faults(s, random);
    const std::uint64_t connections = 1 + random.below(6);
    for (std::uint64_t i = 0; i < connections; ++i)
        s.connections.push_back(draw_connection(s, random));
    s.own_queues = random.chance(0.4);
    if (Psn::kBits < 24) shrink(s, random);
    s.rings = random.chance(0.3);
    if (s.rings) use_rings(s);
    s.far = random.chance(0.3);
    if (s.far && Psn::kBits == 24 && random.chance(0.15)) use_pieces(s, random);
    return s;
}

std::string describe(const Swarm& s) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "nodes=%u shards=%u %s connections=%zu operations=%03x message<=%u depth=%u "
                  "loss=%.3f dup=%.3f reorder=%.3f corrupt=%.3f%s%s%s%s%s%s%s%s%s%s%s",
                  s.nodes, s.shards, s.ipv6 ? "ipv6" : "ipv4", s.connections.size(), s.operations,
                  s.message_max, s.depth, s.faults.loss, s.faults.duplicate, s.faults.reorder,
                  s.faults.corrupt, s.partitions ? " partitions" : "", s.pauses ? " pauses" : "",
                  s.late_receives ? " late" : "", s.deregistrations ? " dereg" : "",
                  s.destructions ? " destroy" : "", s.drains ? " drain" : "",
                  s.resets ? " reset" : "", s.receive_losses ? " srq" : "",
                  s.own_queues ? " queues" : "", s.rings ? " rings" : "", s.far ? " far" : "");
    return text;
}

}  // namespace feroce::sim
