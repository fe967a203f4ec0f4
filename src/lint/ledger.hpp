// Ledger: what the program has posted and not yet got back, by queue. A card gives a request back
// when the program polls its completion, or that of a later one of the same send queue; so does
// the ledger, whatever the soft device has finished meanwhile. Bounded: requests beyond kFollowed
// are not entered, and a queue that lost one is never judged by how full it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "lint/turn.hpp"
#include "lint/words.hpp"

namespace feroce::lint {

struct QueuePair {
    QpMade made;
    QpState state = QpState::Reset;
    std::deque<Request> sends;
    std::deque<Request> receives;       // Its own; a shared queue has its own deque.
    bool lossy = false;                 // Some request was not entered.
    std::uint64_t receives_posted = 0;  // Since RESET.
    bool failed = false;                // A failed completion was polled since RESET.
    std::uint32_t sends_after_failure = 0;
    std::uint64_t heard = 0;  // Requests before this number may have been answered.
    Place made_at = 0;
    Place connected_at = 0;
    // Different ones that were posted and are small numbers in this machine's byte order, until one
    // is not; bounded.
    std::set<std::uint32_t> small_immediates;
    bool judge_immediates = true;
    Turn turn;
};

struct CompletionQueue {
    std::uint32_t entries = 0;
    Handle channel = nullptr;
    std::uint64_t owed = 0;         // Completions that may come of what is posted, or are there.
    std::uint32_t held_at_arm = 0;  // Completions there when it was armed, if not polled since.
    Place armed_at = 0;
    std::uint64_t events_taken = 0;
    std::uint64_t events_acknowledged = 0;
    Place event_taken_at = 0;
    bool one_thread = false;  // Its caller promised to use it by one thread at a time.
    Turn turn;
};

struct SharedQueue {
    std::deque<Request> receives;
    std::uint64_t receives_posted = 0;
};

class Ledger {
public:
    static constexpr std::size_t kFollowed = 65'536;
    static constexpr std::size_t kImmediates = 8;
    // More requests than these are not compared with a new one.
    static constexpr std::size_t kCompared = 1024;

    void made(const QpMade& qp, Place place);
    QueuePair* qp(std::uint32_t qpn);
    CompletionQueue& cq(Handle handle) { return cqs_[handle]; }
    SharedQueue& srq(Handle handle) { return srqs_[handle]; }
    std::map<std::uint32_t, QueuePair>& qps() { return qps_; }
    std::map<Handle, CompletionQueue>& cqs() { return cqs_; }
    const std::map<Handle, SharedQueue>& srqs() const { return srqs_; }

    // Entered before they are posted: a completion may come before the call returns.
    void enter(QueuePair& qp, std::span<Request> requests);
    void enter(SharedQueue& queue, std::span<Request> requests);
    // Those that the device did not take.
    void strike(QueuePair& qp, std::span<const Request> requests);
    void strike(SharedQueue& queue, std::span<const Request> requests);

    // Gives back what a polled completion tells of; `retired` is called for each, oldest first, and
    // the one that completed last.
    using Retired = std::function<void(const Request&)>;
    void complete(QueuePair& qp, const Completion& completion, const Retired& retired);

    // Whether some request that is posted may use bytes of the first SGE too, here or as memory of
    // its peer; true if it is not known.
    bool overlaps(const Request& request) const;
    // Of the last completions that were polled.
    void note_immediate(std::uint32_t immediate);
    bool polled_immediate(std::uint32_t immediate) const;

    std::uint64_t next_sequence() const { return next_sequence_; }
    void clear(QueuePair& qp);  // RESET.
    void forget_qp(std::uint32_t qpn);
    void forget_cq(Handle handle) { cqs_.erase(handle); }
    void forget_srq(Handle handle);

private:
    bool follow(std::deque<Request>& queue, Request& request);
    void drop_front(QueuePair& qp, std::deque<Request>& queue);
    void owe(const QueuePair& qp, const Request& request, int step);

    std::map<std::uint32_t, QueuePair> qps_;
    std::map<Handle, CompletionQueue> cqs_;
    std::map<Handle, SharedQueue> srqs_;
    std::size_t followed_ = 0;
    std::uint64_t next_sequence_ = 1;
    std::array<std::uint32_t, kImmediates> immediates_{};
    std::size_t immediates_seen_ = 0;
};

}  // namespace feroce::lint
