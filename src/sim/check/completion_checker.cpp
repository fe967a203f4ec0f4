#include "sim/check/completion_checker.hpp"

#include <algorithm>

namespace feroce::sim {

using transport::Completion;
using transport::WcStatus;

std::string to_string(const QueueKey& queue) {
    return "node " + std::to_string(queue.node) + " qpn " + std::to_string(queue.qpn) +
           (queue.receive ? " receive queue" : " send queue");
}

void CompletionChecker::posted(const QueueKey& queue, std::uint64_t wr_id, bool signaled) {
    queues_[queue].push_back({wr_id, signaled});
}

std::vector<std::uint64_t> CompletionChecker::completed(const QueueKey& queue,
                                                        const Completion& completion) {
    const auto found = queues_.find(queue);
    const auto is_it = [&](const Posted& p) { return p.wr_id == completion.wr_id; };
    if (found == queues_.end() || std::none_of(found->second.begin(), found->second.end(), is_it)) {
        report_.fail(kName, to_string(queue) + ": request " + std::to_string(completion.wr_id) +
                                " completed though it was not outstanding");
        return {};
    }
    std::deque<Posted>& posted = found->second;
    const bool after_error = failed_.contains(queue);
    std::vector<std::uint64_t> retired;
    while (posted.front().wr_id != completion.wr_id) {
        if (posted.front().signaled || after_error) {
            report_.fail(kName, to_string(queue) + ": request " +
                                    std::to_string(posted.front().wr_id) + " was passed over by " +
                                    std::to_string(completion.wr_id));
        }
        retired.push_back(posted.front().wr_id);
        posted.pop_front();
    }
    if (!posted.front().signaled && completion.status == WcStatus::Success) {
        report_.fail(kName, to_string(queue) + ": unsignalled request " +
                                std::to_string(completion.wr_id) + " gave a completion");
    }
    retired.push_back(completion.wr_id);
    posted.pop_front();
    if (completion.status != WcStatus::Success) failed_.insert(queue);
    return retired;
}

void CompletionChecker::posted_shared(const QueueKey& queue, std::uint64_t wr_id) {
    shared_[queue].insert(wr_id);
}

bool CompletionChecker::completed_shared(const QueueKey& queue, std::uint64_t wr_id) {
    if (shared_[queue].erase(wr_id) == 1) return true;
    report_.fail(kName, to_string(queue) + ": shared receive " + std::to_string(wr_id) +
                            " completed though it was not outstanding");
    return false;
}

std::size_t CompletionChecker::outstanding(const QueueKey& queue) const {
    const auto found = queues_.find(queue);
    if (found != queues_.end()) return found->second.size();
    const auto shared = shared_.find(queue);
    return shared == shared_.end() ? 0 : shared->second.size();
}

void CompletionChecker::expect_none(const QueueKey& queue) {
    const auto found = queues_.find(queue);
    if (found == queues_.end()) return;
    // An unsignalled request that succeeded says so only through a later one: it may be left.
    const auto left = std::find_if(found->second.begin(), found->second.end(),
                                   [](const Posted& p) { return p.signaled; });
    if (left == found->second.end()) return;
    report_.fail(
        kName, to_string(queue) + ": request " + std::to_string(left->wr_id) + " never completed");
}

void CompletionChecker::forget(const QueueKey& queue) {
    queues_.erase(queue);
    failed_.erase(queue);
}

void FlushChecker::completed(const QueueKey& queue, const Completion& completion) {
    if (failed_.contains(queue) && completion.status != WcStatus::FlushError) {
        report_.fail(kName, to_string(queue) + ": request " + std::to_string(completion.wr_id) +
                                " completed with status " +
                                std::to_string(static_cast<int>(completion.status)) +
                                " after an error");
    }
    if (completion.status != WcStatus::Success) failed_.insert(queue);
}

}  // namespace feroce::sim
