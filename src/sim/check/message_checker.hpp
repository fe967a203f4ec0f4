// MessageChecker: what a queue pair receives is what its peer sent: reliable connections all of it,
// once and in order; unreliable ones and datagrams only whole messages that were sent (a network
// that reorders or duplicates packets shows through: they take any start of a message).
// StatusChecker: work fails only for a cause that the scenario gave, and says which.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "sim/check/completion_checker.hpp"
#include "sim/check/pattern.hpp"
#include "sim/check/report.hpp"
#include "transport/reason.hpp"

namespace feroce::sim {

struct Message {
    transport::WcOpcode opcode = transport::WcOpcode::Receive;
    std::uint32_t length = 0;
    std::optional<std::uint32_t> immediate;
    std::optional<std::uint32_t> invalidate;
    Pattern pattern;
};

class MessageChecker {
public:
    static constexpr const char* kName = "messages";

    explicit MessageChecker(Report& report) : report_(report) {}

    void sent(const QueueKey& to, const Message& message);
    // `payload` is empty for a WRITE with immediate: its bytes are not in the receive.
    void received_reliable(const QueueKey& at, const transport::Completion& completion,
                           ByteView payload);
    void received_unreliable(const QueueKey& at, const transport::Completion& completion,
                             ByteView payload);
    std::size_t missing(const QueueKey& at) const;
    void forget(const QueueKey& at) { sent_.erase(at); }

private:
    static bool matches(const Message& message, const transport::Completion& completion,
                        ByteView payload);

    Report& report_;
    std::map<QueueKey, std::deque<Message>> sent_;
};

// Which failures have a cause at the moment.
struct Allowance {
    bool retries = false;  // The peer may be out of reach.
    bool rnr = false;      // The peer may be short of receives for long.
    bool access = false;   // Memory was deregistered under the work.
    bool flush = false;    // The queue pair is in error already.
};

class StatusChecker {
public:
    static constexpr const char* kName = "statuses";

    explicit StatusChecker(Report& report) : report_(report) {}

    void completed(const QueueKey& queue, const transport::Completion& completion,
                   const Allowance& allowance, const transport::ReasonLog& reasons);

private:
    static bool allowed(transport::WcStatus status, const Allowance& allowance);

    Report& report_;
};

}  // namespace feroce::sim
