#include "lint/ledger.hpp"

#include <algorithm>

namespace feroce::lint {
namespace {

// Requests have ascending sequence numbers, so those of one call lie in one range.
std::size_t strike_range(std::deque<Request>& queue, std::span<const Request> requests,
                         const std::function<void(const Request&)>& struck) {
    if (requests.empty()) return 0;
    const std::uint64_t first = requests.front().sequence, last = requests.back().sequence;
    const auto hit = [&](const Request& r) { return r.sequence >= first && r.sequence <= last; };
    for (const Request& request : queue)
        if (hit(request)) struck(request);
    return std::erase_if(queue, hit);
}

bool meet(const Sge& a, const Sge& b) {
    return a.address < b.address + b.length && b.address < a.address + a.length;
}

// Memory of this process too, if the peer is: what a READ brings from there, or an atomic changes.
bool uses_remotely(const Request& r, const Sge& memory) {
    if (r.op != Op::Read && r.op != Op::Atomic) return false;
    return r.remote < memory.address + memory.length && memory.address < r.remote + r.bytes;
}

// A request with more SGEs than are followed may use any memory.
bool uses(const std::deque<Request>& queue, const Sge& memory) {
    return std::any_of(queue.begin(), queue.end(), [&](const Request& r) {
        const auto* end = r.sges.begin() + r.sge_count;
        return r.sge_count == Request::kFollowedSges || uses_remotely(r, memory) ||
               std::any_of(r.sges.begin(), end, [&](const Sge& s) { return meet(s, memory); });
    });
}

}  // namespace

void Ledger::made(const QpMade& made, Place place) {
    QueuePair& qp = qps_[made.qpn];
    qp = {};
    qp.made = made;
    qp.made_at = place;
}

QueuePair* Ledger::qp(std::uint32_t qpn) {
    const auto found = qps_.find(qpn);
    return found == qps_.end() ? nullptr : &found->second;
}

// A send without a signal completes only if it fails, and then the program has other trouble.
void Ledger::owe(const QueuePair& qp, const Request& request, int step) {
    const bool receive = request.op == Op::Receive;
    if (!receive && !request.signaled) return;
    const auto found = cqs_.find(receive ? qp.made.receive_cq : qp.made.send_cq);
    if (found == cqs_.end()) return;
    if (step > 0)
        ++found->second.owed;
    else if (found->second.owed > 0)
        --found->second.owed;
}

bool Ledger::follow(std::deque<Request>& queue, Request& request) {
    request.sequence = next_sequence_++;
    if (followed_ >= kFollowed) return false;
    queue.push_back(request);
    ++followed_;
    return true;
}

void Ledger::enter(QueuePair& qp, std::span<Request> requests) {
    for (Request& request : requests) {
        const bool receive = request.op == Op::Receive;
        if (receive) ++qp.receives_posted;
        if (follow(receive ? qp.receives : qp.sends, request))
            owe(qp, request, 1);
        else
            qp.lossy = true;
    }
}

void Ledger::enter(SharedQueue& queue, std::span<Request> requests) {
    for (Request& request : requests) {
        ++queue.receives_posted;
        (void)follow(queue.receives, request);
    }
}

void Ledger::strike(QueuePair& qp, std::span<const Request> requests) {
    const auto struck = [&](const Request& request) {
        owe(qp, request, -1);
        if (request.op == Op::Receive) --qp.receives_posted;
    };
    followed_ -= strike_range(qp.sends, requests, struck);
    followed_ -= strike_range(qp.receives, requests, struck);
}

void Ledger::strike(SharedQueue& queue, std::span<const Request> requests) {
    followed_ -=
        strike_range(queue.receives, requests, [&](const Request&) { --queue.receives_posted; });
}

void Ledger::drop_front(QueuePair& qp, std::deque<Request>& queue) {
    owe(qp, queue.front(), -1);
    queue.pop_front();
    --followed_;
}

void Ledger::complete(QueuePair& qp, const Completion& done, const Retired& retired) {
    const bool shared = done.receive && qp.made.srq != nullptr;
    std::deque<Request>& queue = shared         ? srqs_[qp.made.srq].receives
                                 : done.receive ? qp.receives
                                                : qp.sends;
    // Programs give many requests one wr_id. The oldest that can have completed is meant: without
    // a signal a send completes only by failing.
    const auto meant = std::find_if(queue.begin(), queue.end(), [&](const Request& r) {
        return r.wr_id == done.wr_id && (done.receive || r.signaled || done.status != 0);
    });
    if (meant == queue.end()) return;
    if (done.receive) {
        retired(*meant);
        if (!shared) owe(qp, *meant, -1);
        queue.erase(meant);
        --followed_;
        return;
    }
    const std::uint64_t last = meant->sequence;
    while (!queue.empty() && queue.front().sequence <= last) {
        retired(queue.front());
        drop_front(qp, queue);
    }
}

bool Ledger::overlaps(const Request& request) const {
    if (followed_ > kCompared) return true;
    const Sge& memory = request.sges[0];
    for (const auto& [qpn, qp] : qps_)
        if (qp.lossy || uses(qp.sends, memory) || uses(qp.receives, memory)) return true;
    return std::any_of(srqs_.begin(), srqs_.end(),
                       [&](const auto& entry) { return uses(entry.second.receives, memory); });
}

void Ledger::note_immediate(std::uint32_t immediate) {
    immediates_[immediates_seen_++ % immediates_.size()] = immediate;
}

bool Ledger::polled_immediate(std::uint32_t immediate) const {
    const auto* end = immediates_.begin() + std::min(immediates_seen_, immediates_.size());
    return std::find(immediates_.begin(), end, immediate) != end;
}

void Ledger::clear(QueuePair& qp) {
    while (!qp.sends.empty()) drop_front(qp, qp.sends);
    while (!qp.receives.empty()) drop_front(qp, qp.receives);
    qp.receives_posted = 0;
    qp.failed = false;
    qp.sends_after_failure = 0;
    qp.lossy = false;
}

void Ledger::forget_qp(std::uint32_t qpn) {
    QueuePair* found = qp(qpn);
    if (found == nullptr) return;
    clear(*found);
    qps_.erase(qpn);
}

void Ledger::forget_srq(Handle handle) {
    const auto found = srqs_.find(handle);
    if (found == srqs_.end()) return;
    followed_ -= found->second.receives.size();
    srqs_.erase(found);
}

}  // namespace feroce::lint
