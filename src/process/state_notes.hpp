// StateNotes: what goes to the state page at once, beside its snapshot: refused calls, and failures
// before the program learns of them. A program may abort because of either. Nothing here takes
// memory or a lock of an engine.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.hpp"
#include "base/spinlock.hpp"
#include "process/call_faults.hpp"
#include "process/state_layout.hpp"
#include "process/state_page.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::process {

// Any thread.
class StateNotes {
public:
    // `qp`: what the call was about; null if no queue pair. Of the same refusal again only the
    // number is kept. The strings live for ever.
    void refused(StatePage& page, const char* call, const Error& error,
                 const transport::QueuePair* qp);
    // An event that FEROCE_FAULTS asked for.
    void raised(StatePage& page, const char* call, FaultEvent event,
                const transport::QueuePair* qp);
    void failed(StatePage& page, const StateReason& reason, std::string_view sentence);
    // Something was noted that a person would miss.
    bool explains() const { return explains_.load(std::memory_order_relaxed); }

private:
    struct Refused {
        const char* call = nullptr;
        const char* why = nullptr;
        Qpn qpn;
        std::uint32_t count = 0;
    };
    // Keeps `text` in the half of refusals; of the same once more only the number.
    void keep(StatePage& page, const Refused& what, bool minor, std::string_view text);

    // Failures and refusals have a half each, so that neither pushes the other out.
    static constexpr std::size_t kFailures = kNotes / 2;
    static constexpr std::size_t kRefusals = kNotes - kFailures;

    Spinlock lock_;  // Guards what follows, and the notes of the page.
    std::array<Refused, kRefusals> refused_{};
    std::size_t next_refusal_ = 0;
    std::size_t next_failure_ = 0;
    std::atomic<bool> explains_{false};  // A hint for the end of the process, hence relaxed.
};

}  // namespace feroce::process
