// What the C++ library gets of us beyond the public ABI, by name at run time: why a queue pair
// failed, in words, with the peer's part if the peer is of this machine and user.
#include <algorithm>
#include <chrono>
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
    }
    if (!reason) return out;
    out.reason = process::reason_of(*reason);
    out.peer_is_local = reason->source == reason->destination;
    out.peer_refused = reason->rule == transport::Rule::PeerRefused;
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
