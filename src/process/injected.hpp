// The faults of calls that FEROCE_FAULTS wants of this process. Without any, a call finds a null
// pointer here, and the data path does not come by (verbs/fault_ops.hpp).
//
// libibverbs and librdmacm have one each: the calls of one are not in the other.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.hpp"
#include "process/call_faults.hpp"

namespace feroce::process {

// The sentence of every injected failure: in the log, and in `feroce explain`.
inline constexpr char kInjected[] = "FEROCE_FAULTS asked for it";

namespace detail {
enum class FaultsKnown : std::uint8_t { NotYet, None, Some };
extern std::atomic<FaultsKnown> faults_known;
CallFaults* find_call_faults();
}  // namespace detail

// Null: none, also if the setting is not understood (the device stays closed then). Every thread
// that looks first comes to the same answer, hence relaxed.
inline CallFaults* call_faults() {
    const auto known = detail::faults_known.load(std::memory_order_relaxed);
    return known == detail::FaultsKnown::None ? nullptr : detail::find_call_faults();
}

struct InjectedFailure {
    const char* call = nullptr;
    Error error{};  // Code 0: the call is made.
};
// A call that is about no object of the data path is about to be made. Its events are raised.
InjectedFailure fail_call(const char* call);

}  // namespace feroce::process
