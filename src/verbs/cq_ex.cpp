#include "verbs/parts.hpp"

#include <ctime>
#include <optional>

#include "base/probe.hpp"
#include "transport/reason.hpp"
#include "verbs/annotated.hpp"
#include "verbs/common.hpp"
#include "verbs/fault_ops.hpp"
#include "verbs/lint.hpp"
#include "verbs/lint_threads.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {
namespace {

const transport::Completion& current(ibv_cq_ex* base) {
    return cq_of(base).current;
}

constexpr int kEmpty = ENOENT;  // The queue is; no error, so errno stays.

// Inlined as it was before lint called it from elsewhere: a poll without lint pays nothing for it.
[[gnu::always_inline]] inline int fetch(Cq& cq) {
    if (cq.queue->poll({&cq.current, 1}) == 0) return kEmpty;
    cq.base.status = static_cast<ibv_wc_status>(cq.current.status);
    cq.base.wr_id = cq.current.wr_id;
    FEROCE_PROBE5(poll_cq, cq.current.qpn.raw, cq.current.opcode, cq.current.byte_length,
                  cq.base.wr_id, cq.base.status);
    if (cq.current.reason != 0)
        process_of(cq.base.context).note_failure(cq.current.qpn, cq.current.reason);
    return 0;
}

int start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attributes) {
    if (attributes != nullptr && attributes->comp_mask != 0)
        return refuse("ibv_start_poll", {EINVAL, "unknown flags"});
    if (!alive(base->context)) return refuse("ibv_start_poll", kDead);
    Cq& cq = cq_of(base);
    cq.poll_mutex.lock();
    const int error = look_for_completions(cq) ? fetch(cq) : kEmpty;
    if (error != 0) cq.poll_mutex.unlock();  // No end_poll follows.
    return error;
}

int next_poll(ibv_cq_ex* base) {
    return fetch(cq_of(base));
}
void end_poll(ibv_cq_ex* base) {
    cq_of(base).poll_mutex.unlock();
}

// While lint is on. The completion is told of before the program can look at it.
int told(ibv_cq_ex* base, int error) {
    const Cq& cq = cq_of(base);
    Lint* lint = lint_of(base->context);
    if (lint == nullptr) return error;
    lint->count_poll();
    lint->tell_quickly([&](lint::Linter& linter) { linter.polled(base); });
    if (error != 0) return error;
    const auto opcode = static_cast<unsigned>(cq.current.opcode);
    const bool good = cq.current.status == transport::WcStatus::Success;
    std::optional<std::uint32_t> immediate;
    if (good && (wc_flags(cq.current) & IBV_WC_WITH_IMM) != 0)
        immediate = immediate_or_key(cq.current);
    lint->completed(cq.current.qpn.raw, cq.current.wr_id, (opcode & IBV_WC_RECV) != 0,
                    static_cast<int>(cq.current.status), immediate);
    return error;
}

int linted_start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attributes) {
    Lint* lint = lint_of(base->context);
    if (lint == nullptr) return start_poll(base, attributes);
    const bool promised = cq_of(base).one_thread;
    const LintTurn<lint::Handle> turn(*lint, base, promised, "ibv_start_poll");
    return told(base, start_poll(base, attributes));
}

int linted_next_poll(ibv_cq_ex* base) {
    return told(base, next_poll(base));
}

ibv_wc_opcode read_opcode(ibv_cq_ex* base) {
    return static_cast<ibv_wc_opcode>(current(base).opcode);
}
std::uint32_t read_vendor_err(ibv_cq_ex* base) {
    return current(base).reason;
}
std::uint32_t read_byte_len(ibv_cq_ex* base) {
    return current(base).byte_length;
}
__be32 read_imm_data(ibv_cq_ex* base) {
    return immediate_or_key(current(base));
}
std::uint32_t read_qp_num(ibv_cq_ex* base) {
    return current(base).qpn.raw;
}
std::uint32_t read_src_qp(ibv_cq_ex* base) {
    return current(base).source_qpn.raw;
}
unsigned int read_wc_flags(ibv_cq_ex* base) {
    return wc_flags(current(base));
}
std::uint32_t read_slid(ibv_cq_ex*) {
    return 0;
}
std::uint8_t read_sl(ibv_cq_ex* base) {
    return service_level(current(base));
}
std::uint8_t read_dlid_path_bits(ibv_cq_ex*) {
    return 0;
}
std::uint64_t read_completion_ts(ibv_cq_ex* base) {
    return current(base).timestamp_ns;
}
std::uint64_t read_completion_wallclock_ns(ibv_cq_ex* base) {
    return current(base).timestamp_ns + cq_of(base).wall_clock_offset_ns;
}

// What has no meaning in a failed completion.
enum class Field : std::uint8_t { Opcode, ByteLen, ImmData, SrcQp, Flags };

constexpr const char* kFieldNames[] = {"ibv_wc_read_opcode", "ibv_wc_read_byte_len",
                                       "ibv_wc_read_imm_data", "ibv_wc_read_src_qp",
                                       "ibv_wc_read_wc_flags"};

template <Field kField, auto kRead>
auto linted_read(ibv_cq_ex* base) {
    const transport::Completion& c = current(base);
    Lint* lint = lint_of(base->context);
    if (lint != nullptr && c.status != transport::WcStatus::Success)
        lint->tell([&](lint::Linter& linter, lint::Place place) {
            linter.field_read({.qpn = c.qpn.raw,
                               .wr_id = c.wr_id,
                               .receive = false,
                               .status = static_cast<int>(c.status),
                               .status_name = transport::name(c.status),
                               .why = {}},
                              kFieldNames[static_cast<std::size_t>(kField)], place);
        });
    return kRead(base);
}

// With a sanitizer in the program.
template <auto kStart>
int annotated_start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attributes) {
    const int error = kStart(base, attributes);
    if (error == 0) note_completion();
    return error;
}

template <auto kNext>
int annotated_next_poll(ibv_cq_ex* base) {
    const int error = kNext(base);
    if (error == 0) note_completion();
    return error;
}

template <auto kStart, auto kNext>
void annotate_polls(ibv_cq_ex& out) {
    const bool annotated = wants_annotations();
    out.start_poll = annotated ? annotated_start_poll<kStart> : kStart;
    out.next_poll = annotated ? annotated_next_poll<kNext> : kNext;
}

template <auto kStart, auto kNext>
void fill_polls(ibv_cq_ex& out) {
    if (faults_wanted())
        annotate_polls<faulted_start_poll<kStart>, faulted_next_poll<kNext>>(out);
    else
        annotate_polls<kStart, kNext>(out);
}

void lint_extended_operations(ibv_cq_ex& out) {
    fill_polls<linted_start_poll, linted_next_poll>(out);
    out.read_opcode = linted_read<Field::Opcode, read_opcode>;
    out.read_wc_flags = linted_read<Field::Flags, read_wc_flags>;
    if (out.read_byte_len != nullptr)
        out.read_byte_len = linted_read<Field::ByteLen, read_byte_len>;
    if (out.read_imm_data != nullptr)
        out.read_imm_data = linted_read<Field::ImmData, read_imm_data>;
    if (out.read_src_qp != nullptr) out.read_src_qp = linted_read<Field::SrcQp, read_src_qp>;
}

std::uint64_t wall_clock_offset(process::Process& process) {
    timespec wall;
    ::clock_gettime(CLOCK_REALTIME, &wall);
    const auto real = std::chrono::seconds(wall.tv_sec) + std::chrono::nanoseconds(wall.tv_nsec);
    return static_cast<std::uint64_t>((real - process.host().now().time_since_epoch()).count());
}

}  // namespace

void fill_extended_operations(Cq& cq, std::uint64_t flags) {
    ibv_cq_ex& out = cq.base;
    fill_polls<start_poll, next_poll>(out);
    out.end_poll = end_poll;
    out.read_opcode = read_opcode;
    out.read_vendor_err = read_vendor_err;
    out.read_wc_flags = read_wc_flags;
    if ((flags & IBV_WC_EX_WITH_BYTE_LEN) != 0) out.read_byte_len = read_byte_len;
    if ((flags & IBV_WC_EX_WITH_IMM) != 0) out.read_imm_data = read_imm_data;
    if ((flags & IBV_WC_EX_WITH_QP_NUM) != 0) out.read_qp_num = read_qp_num;
    if ((flags & IBV_WC_EX_WITH_SRC_QP) != 0) out.read_src_qp = read_src_qp;
    if ((flags & IBV_WC_EX_WITH_SLID) != 0) out.read_slid = read_slid;
    if ((flags & IBV_WC_EX_WITH_SL) != 0) out.read_sl = read_sl;
    if ((flags & IBV_WC_EX_WITH_DLID_PATH_BITS) != 0) out.read_dlid_path_bits = read_dlid_path_bits;
    if ((flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0)
        out.read_completion_ts = read_completion_ts;
    if ((flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0) {
        out.read_completion_wallclock_ns = read_completion_wallclock_ns;
        cq.wall_clock_offset_ns = wall_clock_offset(process_of(out.context));
    }
    if (lint_of(out.context) != nullptr) lint_extended_operations(out);
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
    return abi_call("ibv_create_cq_ex", [&]() -> ibv_cq_ex* {
        constexpr std::uint64_t kKnownFields = std::uint64_t{IBV_WC_STANDARD_FLAGS} |
                                               IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                               IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
        constexpr std::uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        constexpr std::uint32_t kKnownFlags =
            IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        const bool strange_flags = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
                                   (attributes->flags & ~kKnownFlags) != 0;
        if ((attributes->comp_mask & ~kKnownMask) != 0 || strange_flags ||
            (attributes->wc_flags & ~kKnownFields) != 0)
            return refuse_null("ibv_create_cq_ex",
                               {EOPNOTSUPP, "a field or flag that we do not have"});
        return make_cq(context, *attributes);
    });
}

}  // namespace feroce::verbs
