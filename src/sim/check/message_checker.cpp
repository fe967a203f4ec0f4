#include "sim/check/message_checker.hpp"

#include <algorithm>

namespace feroce::sim {

using transport::Completion;
using transport::WcOpcode;
using transport::WcStatus;

void MessageChecker::sent(const QueueKey& to, const Message& message) {
    sent_[to].push_back(message);
}

bool MessageChecker::matches(const Message& message, const Completion& completion,
                             ByteView payload) {
    if (message.opcode != completion.opcode) return false;
    if (message.immediate.has_value() != completion.has_immediate) return false;
    if (message.invalidate.has_value() != completion.has_invalidate) return false;
    if (message.immediate && *message.immediate != completion.immediate) return false;
    if (message.invalidate && *message.invalidate != completion.immediate) return false;
    if (message.opcode != WcOpcode::Receive) return message.length == completion.byte_length;
    return message.length == payload.size() && message.pattern.mismatch(payload) == payload.size();
}

void MessageChecker::received_reliable(const QueueKey& at, const Completion& completion,
                                       ByteView payload) {
    std::deque<Message>& queue = sent_[at];
    if (!queue.empty() && matches(queue.front(), completion, payload)) {
        queue.pop_front();
        return;
    }
    report_.fail(kName, to_string(at) + ": receive " + std::to_string(completion.wr_id) + " of " +
                            std::to_string(completion.byte_length) +
                            " bytes is not the next message that was sent (" +
                            std::to_string(queue.size()) + " missing)");
    if (!queue.empty()) queue.pop_front();
}

void MessageChecker::received_unreliable(const QueueKey& at, const Completion& completion,
                                         ByteView payload) {
    const std::deque<Message>& queue = sent_[at];
    const bool known = std::any_of(queue.begin(), queue.end(), [&](const Message& m) {
        return matches(m, completion, payload);
    });
    if (!known)
        report_.fail(kName, to_string(at) + ": receive " + std::to_string(completion.wr_id) +
                                " is no message that was sent");
}

std::size_t MessageChecker::missing(const QueueKey& at) const {
    const auto found = sent_.find(at);
    return found == sent_.end() ? 0 : found->second.size();
}

bool StatusChecker::allowed(WcStatus status, const Allowance& allowance) {
    switch (status) {
        case WcStatus::Success:
            return true;
        case WcStatus::FlushError:
            return allowance.flush;
        case WcStatus::RetryExceededError:
            return allowance.retries;
        case WcStatus::RnrRetryExceededError:
            return allowance.rnr;
        case WcStatus::RemoteAccessError:
        case WcStatus::RemoteOperationError:
        case WcStatus::LocalProtectionError:
        case WcStatus::LocalAccessError:
        case WcStatus::WindowBindError:
            return allowance.access;
        default:
            return false;
    }
}

void StatusChecker::completed(const QueueKey& queue, const Completion& completion,
                              const Allowance& allowance, const transport::ReasonLog& reasons) {
    if (completion.status == WcStatus::Success) return;
    const transport::Reason* reason = reasons.find(completion.reason);
    if (!allowed(completion.status, allowance)) {
        report_.fail(kName, to_string(queue) + ": request " + std::to_string(completion.wr_id) +
                                " failed without cause, status " +
                                std::to_string(static_cast<int>(completion.status)) + ": " +
                                (reason != nullptr ? describe(*reason) : "no reason"));
        return;
    }
    if (reasons.was_overwritten(completion.reason)) return;
    if (reason == nullptr || reason->rule == transport::Rule::None)
        report_.fail(kName, to_string(queue) + ": request " + std::to_string(completion.wr_id) +
                                " failed with status " +
                                std::to_string(static_cast<int>(completion.status)) +
                                " and no reason");
}

}  // namespace feroce::sim
