#include "process/state_notes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

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
    if (error.code == EOPNOTSUPP || error.code == ENODATA) return true;
    for (const char* head : {"ibv_query_", "ibv_de", "rdma_de", "rdma_disconnect"})
        if (begins_with(call, head)) return true;
    return false;
}

}  // namespace

void StateNotes::refused(StatePage& page, const char* call, const Error& error,
                         const transport::QueuePair* qp) {
    const Qpn qpn = qp == nullptr ? Qpn{0} : qp->qpn();
    const auto hold = lock_soon(lock_);
    if (!hold.owns_lock()) return;
    const auto known = std::find_if(refused_.begin(), refused_.end(), [&](const Refused& r) {
        return r.call == call && r.why == error.why && r.qpn == qpn;
    });
    if (known != refused_.end())
        return page.count_note(kFailures + static_cast<std::size_t>(known - refused_.begin()),
                               ++known->count);
    char about[64] = "";
    if (qp != nullptr)
        std::snprintf(about, sizeof about, " of QP 0x%06x in state %s", qpn.raw,
                      transport::name_of(qp->state()));
    std::array<char, sizeof(PageNote::text)> text;
    const int length = std::snprintf(text.data(), text.size(), "%s%s was refused (%s): %s", call,
                                     about, ::strerrorname_np(error.code), error.why);
    StateReason reason;
    reason.qpn = qpn.raw;
    reason.kind = StateReasonKind::Local;
    reason.minor = is_minor(call, error);
    if (!reason.minor) explains_.store(true, std::memory_order_relaxed);
    refused_[next_refusal_] = {call, error.why, qpn, 1};
    page.note(kFailures + next_refusal_, reason,
              {text.data(), std::min(static_cast<std::size_t>(length), text.size() - 1)});
    next_refusal_ = (next_refusal_ + 1) % kRefusals;
}

void StateNotes::failed(StatePage& page, const StateReason& reason, std::string_view sentence) {
    const auto hold = lock_soon(lock_);
    if (!hold.owns_lock()) return;
    explains_.store(true, std::memory_order_relaxed);
    page.note(next_failure_, reason, sentence);
    next_failure_ = (next_failure_ + 1) % kFailures;
}

}  // namespace feroce::process
