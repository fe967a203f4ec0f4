// Lint at the edge of the ABI: turns calls into the lint room's events and findings into reports
// on stderr. Off, there is none: the tables of operations are the plain ones, and calls that are
// not on the data path find a null pointer (docs/adr/0028-lint-by-tables.md).
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/shortage.hpp"
#include "base/uncancelled.hpp"
#include "lint/linter.hpp"
#include "transport/notice.hpp"
#include "verbs/lint_order.hpp"
#include "verbs/lint_places.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

enum class LintMode : std::uint8_t { Off, Warn, Abort };

struct LintWishes {
    LintMode mode = LintMode::Off;
    const lint::Card* card = nullptr;  // Whose limits programs are held to as well.
    bool any_order = false;            // The device places bytes in an order of its own.
};

class Lint final : private lint::Memory {
public:
    Lint(process::Process& process, const LintWishes& wishes);

    // Tells the linter something: body(linter, place). The errno of the call that it is about
    // stays. Where memory is wanting, it is not told.
    template <class Body>
    void tell(Body&& body) {
        const int error = errno;
        {
            const Uncancelled part;
            (void)with_memory([&] {
                const Trace trace = trace_here();
                const std::lock_guard lock(mutex_);
                body(linter_, places_.number(trace));
            });
        }
        errno = error;
    }
    // The same for what is no call of the program's, or needs no place.
    template <class Body>
    void tell_quickly(Body&& body) {
        const int error = errno;
        {
            const Uncancelled part;
            (void)with_memory([&] {
                const std::lock_guard lock(mutex_);
                body(linter_);
            });
        }
        errno = error;
    }

    using Requests = std::vector<lint::Request>;
    Requests requests_of(Qp& qp, const ibv_send_wr* list);
    Requests requests_of(ibv_pd* pd, const ibv_recv_wr* list);
    Requests requests_of(Qp& qp, const Builder& builder);

    // What a program asks for, before the device settles what it grants.
    void asks_qp(const ibv_qp_init_attr_ex& asked);
    void qp_made(Qp& qp);
    // Before the program posts sends.
    void look_at_order();
    AnyOrder* any_order() { return wishes_.any_order ? &order_ : nullptr; }
    void qp_destroyed(std::uint32_t qpn);
    // `why` has a code if the call was refused.
    void modified(Qp& qp, const ibv_qp_attr& attributes, int mask, transport::QpState from,
                  const Error& why);
    // An immediate is as it lies in imm_data.
    void completed(std::uint32_t qpn, std::uint64_t wr_id, bool receive, int status,
                   std::optional<std::uint32_t> immediate);
    // What peers have had trouble with; now and then.
    void look_at_notices();
    // The same at exit, which may come from a signal handler: a lock that cannot be had is left.
    void look_at_exit();
    void count_poll();
    // Before ibv_destroy_cq: until all events of the queue are acknowledged, a second at most.
    void await_acknowledgements(const void* cq);

private:
    using Notices = std::array<transport::Notice, transport::NoticeLog::kCapacity>;

    lint::Fingerprint look(std::uint32_t pd, const lint::Request& request) override;
    lint::Marks mark(std::uint32_t pd, const lint::Request& request) override;
    void unmark(std::uint32_t pd, const lint::Request& request) override;
    bool carries_mark(PdId pd, const mem::Sge& sge);
    void report(const lint::Finding& finding);
    void finish(lint::Request& request, PdId pd, std::span<const mem::Sge> sges);
    lint::SgeTrouble trouble(PdId pd, const mem::Sge& sge, lint::Op op, std::uint32_t index);
    void look_for_reason(std::uint32_t qpn, lint::Completion& done);
    void take_notices(const Notices& all);  // With the lock held.

    process::Process& process_;
    const LintWishes wishes_;
    std::mutex mutex_;  // Guards the next four.
    Places places_;
    lint::Linter linter_;
    std::map<std::uint32_t, Qp*> qps_;
    std::map<std::pair<std::uint32_t, std::uint8_t>, std::uint32_t> notices_seen_;  // Their counts.
    std::atomic<std::uint32_t> polls_{0};
    AnyOrder order_;  // Has a lock of its own.
};

// Null if it is off, or the object's context is not of this process.
Lint* lint_of(ibv_context* context);

// lint_ops.cpp: the tables of operations with lint in them.
void fill_linted_operations(ibv_context_ops& ops);
// Before ibv_get_cq_event waits.
void lint_sleep(Lint& lint, ibv_comp_channel* channel);
// Around ibv_wr_complete.
int lint_builder(ibv_qp_ex* base, int (*complete)(ibv_qp_ex*));

}  // namespace feroce::verbs
