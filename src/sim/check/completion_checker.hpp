// CompletionChecker: every signalled work request of a queue completes exactly once and in the
// order of posting; after an error so does every one, signalled or not. FlushChecker: after the
// first error on a queue there is nothing but flush errors.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "base/ids.hpp"
#include "sim/check/report.hpp"
#include "transport/work.hpp"

namespace feroce::sim {

// One queue of one queue pair. No queue pair has a number below 3: with `receive` such a one is a
// shared receive queue of the node.
struct QueueKey {
    std::uint32_t node = 0;
    std::uint32_t qpn = 0;
    bool receive = false;

    friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
};

class CompletionChecker {
public:
    static constexpr const char* kName = "completions";

    explicit CompletionChecker(Report& report) : report_(report) {}

    void posted(const QueueKey& queue, std::uint64_t wr_id, bool signaled);
    // The requests this completion retires, oldest first: its own and unsignalled ones before it.
    std::vector<std::uint64_t> completed(const QueueKey& queue,
                                         const transport::Completion& completion);
    // Shared receive queues serve many queue pairs: once, but in no order.
    void posted_shared(const QueueKey& queue, std::uint64_t wr_id);
    bool completed_shared(const QueueKey& queue, std::uint64_t wr_id);
    void forget_shared(const QueueKey& queue) { shared_.erase(queue); }

    std::size_t outstanding(const QueueKey& queue) const;
    void expect_none(const QueueKey& queue);  // All must have completed by now.
    void forget(const QueueKey& queue);       // Destroyed: nothing of it may complete any more.

private:
    struct Posted {
        std::uint64_t wr_id;
        bool signaled;
    };

    Report& report_;
    std::map<QueueKey, std::deque<Posted>> queues_;
    std::map<QueueKey, std::set<std::uint64_t>> shared_;
    std::set<QueueKey> failed_;
};

class FlushChecker {
public:
    static constexpr const char* kName = "flush";

    explicit FlushChecker(Report& report) : report_(report) {}

    void completed(const QueueKey& queue, const transport::Completion& completion);
    void forget(const QueueKey& queue) { failed_.erase(queue); }

private:
    Report& report_;
    std::set<QueueKey> failed_;
};

std::string to_string(const QueueKey& queue);

}  // namespace feroce::sim
