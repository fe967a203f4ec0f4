#include "process/state_notes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "process/injected.hpp"
#include "transport/qp_state.hpp"

namespace feroce::process {
namespace {

// A thread that left by siglongjmp() may have kept the lock: better no note than none to go on.
std::unique_lock<Spinlock> lock_soon(Spinlock& lock) {
    constexpr int kTries = 10'000;
    std::unique_lock hold(lock, std::try_to_lock);
    for (int i = 0; i < kTries && !hold.owns_lock(); ++i) (void)hold.try_lock();
    return hold;
}

bool begins_with(const char* text, std::string_view head) {
    return std::string_view(text).substr(0, head.size()) == head;
}

// Programs ask what there is, and end what has ended: no mistakes.
bool is_minor(const char* call, const Error& error) {
    if (std::strcmp(error.why, kInjected) == 0) return false;  // Maybe of another library.
    if (error.code == EOPNOTSUPP || error.code == ENODATA) return true;
    for (const char* head : {"ibv_query_", "ibv_de", "rdma_de", "rdma_disconnect"})
        if (begins_with(call, head)) return true;
    return false;
}

Qpn qpn_of(const transport::QueuePair* qp) {
    return qp == nullptr ? Qpn{0} : qp->qpn();
}

std::array<char, 64> about(const transport::QueuePair* qp) {
    std::array<char, 64> out{};
    if (qp != nullptr)
        std::snprintf(out.data(), out.size(), " of QP 0x%06x in state %s", qp->qpn().raw,
                      transport::name_of(qp->state()));
    return out;
}

using Text = std::array<char, sizeof(PageNote::text)>;

[[gnu::format(printf, 2, 3)]] std::string_view print(Text& out, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(out.data(), out.size(), format, arguments);
    va_end(arguments);
    return {out.data(), std::min(static_cast<std::size_t>(std::max(length, 0)), out.size() - 1)};
}

}  // namespace

void StateNotes::keep(StatePage& page, const Refused& what, bool minor, std::string_view text) {
    const auto hold = lock_soon(lock_);
    if (!hold.owns_lock()) return;
    const auto known = std::find_if(refused_.begin(), refused_.end(), [&](const Refused& r) {
        return r.call == what.call && r.why == what.why && r.qpn == what.qpn;
    });
    if (known != refused_.end())
        return page.count_note(kFailures + static_cast<std::size_t>(known - refused_.begin()),
                               ++known->count);
    StateReason reason;
    reason.qpn = what.qpn.raw;
    reason.kind = StateReasonKind::Local;
    reason.minor = minor;
    if (!minor) explains_.store(true, std::memory_order_relaxed);
    refused_[next_refusal_] = what;
    page.note(kFailures + next_refusal_, reason, text);
    next_refusal_ = (next_refusal_ + 1) % kRefusals;
}

void StateNotes::refused(StatePage& page, const char* call, const Error& error,
                         const transport::QueuePair* qp) {
    Text text;
    keep(page, {call, error.why, qpn_of(qp), 1}, is_minor(call, error),
         print(text, "%s%s was refused (%s): %s", call, about(qp).data(),
               ::strerrorname_np(error.code), error.why));
}

void StateNotes::raised(StatePage& page, const char* call, FaultEvent event,
                        const transport::QueuePair* qp) {
    Text text;
    keep(page, {call, name_of(event), qpn_of(qp), 1}, false,
         print(text, "%s%s came with the event %s: %s", call, about(qp).data(), name_of(event),
               kInjected));
}

void StateNotes::failed(StatePage& page, const StateReason& reason, std::string_view sentence) {
    const auto hold = lock_soon(lock_);
    if (!hold.owns_lock()) return;
    explains_.store(true, std::memory_order_relaxed);
    page.note(next_failure_, reason, sentence);
    next_failure_ = (next_failure_ + 1) % kFailures;
}

}  // namespace feroce::process
