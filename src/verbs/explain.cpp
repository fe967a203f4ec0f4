// What the C++ library gets of us beyond the public ABI, by name at run time: why a queue pair
// failed, in words, with the peer's part if the peer is of this machine and user.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "process/state_export.hpp"
#include "process/state_page.hpp"
#include "process/waiting.hpp"
#include "verbs/common.hpp"
#include "verbs/explain.hpp"
#include "verbs/instance.hpp"
#include "verbs/objects.hpp"
#include "verbs/parts.hpp"

using namespace feroce;
using namespace feroce::verbs;

namespace {

// Others answer in well under a millisecond; the caller may have more to do than to wait for one
// that is stopped.
constexpr std::chrono::milliseconds kPatience{100};

Failure first_failure(Qp& qp) {
    Failure out;
    std::optional<transport::Reason> reason;
    {
        process::Shard::Session session(*qp.shard);
        if (qp.machine == nullptr) return out;  // Another thread destroys the queue pair.
        const transport::ReasonLog& log = session.engine().reasons();
        if (const transport::Reason* found = log.find(qp.machine->first_reason())) reason = *found;
        if (reason && reason->rule == transport::Rule::RetryLimit && !reason->peer_heard)
            out.unheard_psn = qp.machine->attributes().receive_psn.raw();
    }
    if (!reason) return out;
    out.reason = process::reason_of(*reason);
    out.peer_is_local = reason->source == reason->destination;
    out.peer_refused = reason->rule == transport::Rule::PeerRefused;
    if (!out.peer_is_local) out.unheard_psn.reset();
    return out;
}

// The peer's part, if the peer is a queue pair of this process.
std::string own_refusal(Instance& instance, const process::StateReason& failure) {
    std::string out;
    const auto memory = std::make_unique<process::EngineMemory>();
    for (std::size_t i = 0; i < instance.shard_count(); ++i) {
        memory->look(process::Shard::Session(instance.shard(i)).engine());
        for (const process::StateReason& reason : process::reasons_of(*memory))
            if (process::answers(reason, failure)) out = reason.sentence;
    }
    return out;
}

std::string refusal_elsewhere(std::uint32_t user, const process::StateReason& failure) {
    // A simulated node has no page, and no real time to wait in.
    if (process::waiter.load(std::memory_order_relaxed) != nullptr) return {};
    for (const process::StateReading& reading : process::read_state_pages(user, kPatience))
        for (const process::StateReason& reason : reading.snapshot.reasons)
            if (process::answers(reason, failure))
                return reading.snapshot.command + ": " + reason.sentence;
    return {};
}

// Whether a queue pair here has that number and begins with that PSN.
bool begins_with(Instance& instance, std::uint32_t qpn, std::uint32_t psn) {
    for (std::size_t i = 0; i < instance.shard_count(); ++i) {
        process::Shard::Session session(instance.shard(i));
        if (const transport::QueuePair* qp = session.engine().qps().find(Qpn{qpn}))
            return qp->attributes().send_psn.raw() == psn;
    }
    for (const process::StateReading& reading :
         process::read_state_pages(instance.host().identity().user, kPatience))
        for (const process::StateQp& qp : reading.snapshot.qps)
            if (reading.alive && qp.qpn == qpn) return qp.send_psn == psn;
    return false;
}

}  // namespace

namespace feroce::verbs {

Failure find_failure(Instance& instance, Qp& qp) {
    Failure out = first_failure(qp);
    if (out.peer_refused && out.peer_is_local) out.cause = own_refusal(instance, out.reason);
    return out;
}

std::string explain(Instance& instance, const Failure& failure) {
    std::string cause = failure.cause;
    if (failure.peer_refused && failure.peer_is_local && cause.empty())
        cause = refusal_elsewhere(instance.host().identity().user, failure.reason);
    return cause.empty() ? failure.reason.sentence : failure.reason.sentence + ", because " + cause;
}

std::string exchanged_numbers(Instance& instance, const Failure& failure) {
    // A simulated node has no page, and no real time to wait in.
    if (!failure.unheard_psn || process::waiter.load(std::memory_order_relaxed) != nullptr)
        return {};
    const std::uint32_t number = failure.reason.peer_qpn, psn = *failure.unheard_psn;
    if (number == psn || !begins_with(instance, psn, number)) return {};
    char out[128];
    std::snprintf(out, sizeof out,
                  "the peer is queue pair 0x%06x and begins with PSN 0x%06x: its number and first "
                  "PSN were exchanged",
                  psn, number);
    return out;
}

}  // namespace feroce::verbs

// Writes at most `size` bytes, without a final zero, and returns how many; 0 if nothing is known.
extern "C" [[gnu::visibility("default")]] std::size_t feroce_explain(ibv_qp* base, char* out,
                                                                     std::size_t size) {
    return abi_call("feroce_explain", [&]() -> std::size_t {
        if (!alive(base->context)) return 0;
        Instance& instance = Instance::get();
        const std::string text = explain(instance, find_failure(instance, qp_of(base)));
        const std::size_t length = std::min(size, text.size());
        std::copy_n(text.begin(), length, out);
        return length;
    });
}
