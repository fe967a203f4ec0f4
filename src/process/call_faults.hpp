// Faults of calls: which call of the C ABI fails, finds its completions late or comes with an
// asynchronous event, because FEROCE_FAULTS asks for it. A list of
//
//     CALL:WHAT@N     the Nth CALL of the process        WHAT: an errno (ENOMEM), an event
//     CALL:WHAT@N+    the Nth and all after it           (QP_FATAL), or LATE, of polls
//     CALL:WHAT=RATE  each with this probability
//     EVENT@Nms       N milliseconds after the first device was opened
//
// between which the faults of packets stand (port/faults.hpp). What happens to the Nth call is a
// function of the list, the seed and N alone (docs/adr/0031-faults-of-calls.md).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace feroce::process {

// What an event is about, and what a call has at hand.
enum class FaultSubject : std::uint8_t { Library, Device, Qp, Cq, Srq };

// Numbers are those of ibv_event_type.
enum class FaultEvent : std::uint8_t {
    CqError = 0,
    QpFatal = 1,
    QpRequestError = 2,
    QpAccessError = 3,
    DeviceFatal = 8,
    PortActive = 9,
    PortError = 10,
    SrqError = 14,
    SrqLimitReached = 15,
    GidChange = 18,
};
const char* name_of(FaultEvent event);  // As in FEROCE_FAULTS.

// A row of the table of calls: one operation, with all names by which programs reach it.
struct FaultCall {
    std::array<const char*, 4> names{};  // The first is what it is called; the rest may be null.
    FaultSubject subject = FaultSubject::Device;
    bool polls = false;
};
inline constexpr std::size_t kFaultCalls = 52;
const std::array<FaultCall, kFaultCalls>& fault_calls();

struct CallFault {
    std::optional<std::size_t> call;  // A row; none: by time.
    int error = 0;                    // Of these three one is set.
    bool late = false;
    std::optional<FaultEvent> event;

    std::uint64_t first = 0;  // 0: by `rate`.
    bool onward = false;
    double rate = 0;
    std::chrono::milliseconds after{0};
};

struct FaultPlan {
    std::vector<CallFault> calls;
    std::uint64_t seed = 1;
    std::string packets;       // The other items, for port::parse_faults().
    bool has_packets = false;  // There are some beside the seed.
};
Result<FaultPlan> plan_faults(std::string_view text);

// Any thread.
class CallFaults {
public:
    explicit CallFaults(FaultPlan plan) : plan_(std::move(plan)) {}

    struct Verdict {
        const char* call = nullptr;  // The first name of its row.
        int error = 0;               // 0: the call is made.
        bool late = false;
        std::optional<FaultEvent> event;
    };
    // The call of that name is about to be made. A name that is in no row never fails.
    Verdict next(std::string_view call);
    void restart();  // As if no call had been made: in a forked child.

    const FaultPlan& plan() const { return plan_; }

private:
    bool hits(std::size_t index, std::uint64_t nth) const;

    FaultPlan plan_;
    // Calls so far. Each is a number of its own, hence relaxed.
    std::array<std::atomic<std::uint64_t>, kFaultCalls> counts_{};
};

}  // namespace feroce::process
