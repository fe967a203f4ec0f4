#include "verbs/lint.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "mem/touch.hpp"
#include "transport/notice.hpp"
#include "transport/qp_state.hpp"
#include "verbs/common.hpp"
#include "verbs/explain.hpp"
#include "verbs/instance.hpp"
#include "verbs/lint_order.hpp"
#include "verbs/parts.hpp"

namespace feroce::verbs {
namespace {

// A look takes every shard's lock once.
constexpr std::uint32_t kPollsBetweenLooks = 1024;

std::uint64_t mix(std::uint64_t hash, ByteView bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof hash) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
        hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
        hash ^= hash >> 29;
    }
    return hash;
}

lint::QpType type_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
            return lint::QpType::Rc;
        case IBV_QPT_UC:
            return lint::QpType::Uc;
        case IBV_QPT_UD:
            return lint::QpType::Ud;
        default:
            return lint::QpType::Xrc;
    }
}

lint::QpState state_of(transport::QpState state) {
    switch (state) {
        case transport::QpState::Reset:
            return lint::QpState::Reset;
        case transport::QpState::Init:
            return lint::QpState::Quiet;
        case transport::QpState::Err:
            return lint::QpState::Error;
        default:
            return lint::QpState::Connected;
    }
}

std::string names(std::uint32_t mask) {
    return mask == 0 ? "" : transport::names_of({mask}).substr(1);
}

std::optional<lint::NoticeKind> kind_of(transport::NoticeKind kind) {
    switch (kind) {
        case transport::NoticeKind::NoReceive:
            return lint::NoticeKind::NoReceive;
        case transport::NoticeKind::FirstPsn:
            return lint::NoticeKind::FirstPsn;
        case transport::NoticeKind::WrongQkey:
            return lint::NoticeKind::WrongQkey;
        case transport::NoticeKind::LongDatagram:
            return lint::NoticeKind::LongDatagram;
        case transport::NoticeKind::CompletionsLost:
            return lint::NoticeKind::CqOverrun;
        default:
            return std::nullopt;  // A network's trouble, or the end of a connection.
    }
}

}  // namespace

Lint::Lint(process::Process& process, const LintWishes& wishes)
    : process_(process), wishes_(wishes), linter_(*this, [this](const auto& f) { report(f); }) {
    linter_.hold_to(wishes.card);
    (void)trace_here();  // The first loads the unwinder; not within a call of the data path.
}

Lint* lint_of(ibv_context* context) {
    return alive(context) ? instance_of(context).lint.get() : nullptr;
}

// One write, so that reports of several threads and processes do not mix.
void Lint::report(const lint::Finding& finding) {
    std::string text =
        std::string("feroce: lint: ") + lint::name(finding.kind) + ": " + finding.sentence + "\n";
    if (!finding.mend.empty())
        text += std::string("  ") + finding.verb + " by\n" + places_.describe(finding.place) +
                "  mend: " + finding.mend + "\n";
    ::syscall(SYS_write, STDERR_FILENO, text.data(), text.size());
    if (wishes_.mode == LintMode::Abort) std::abort();
}

// Read without a shard's lock: if another thread deregisters the memory meanwhile, that is the
// mistake that is looked for, and touch.hpp survives it.
lint::Fingerprint Lint::look(std::uint32_t pd, const lint::Request& request) {
    lint::Fingerprint out;
    const std::uint64_t part_size =
        (request.bytes + lint::Fingerprint::kParts - 1) / lint::Fingerprint::kParts;
    std::array<std::uint64_t, lint::Fingerprint::kParts> hashes{};
    std::array<std::byte, 4096> buffer;
    std::uint64_t position = 0;
    for (std::size_t i = 0; i < request.sge_count; ++i) {
        const lint::Sge& sge = request.sges[i];
        if (sge.length == 0) continue;
        const mem::Lookup found =
            process_.memory().local(PdId{pd}, LKey{sge.key}, sge.address, sge.length, {});
        if (found.fault != mem::Fault::None) return out;
        for (std::uint64_t at = 0; at < sge.length;) {
            const std::uint64_t part = position / part_size;
            const std::uint64_t size = std::min(
                {std::uint64_t{sge.length} - at, buffer.size(), (part + 1) * part_size - position});
            const auto piece = std::span(buffer).first(static_cast<std::size_t>(size));
            if (!mem::read_memory(found.slice.part(at, size), piece)) return out;
            hashes[part] = mix(hashes[part], piece);
            at += size;
            position += size;
        }
    }
    for (std::size_t i = 0; i < hashes.size(); ++i)
        out.parts[i] = static_cast<std::uint32_t>(hashes[i] ^ hashes[i] >> 32);
    out.known = true;
    return out;
}

void Lint::asks_qp(const ibv_qp_init_attr_ex& asked) {
    tell([&](lint::Linter& linter, lint::Place place) {
        linter.asks_qp({.type = type_of(asked.qp_type),
                        .sends = asked.cap.max_send_wr,
                        .receives = asked.srq == nullptr ? asked.cap.max_recv_wr : 0,
                        .send_sges = asked.cap.max_send_sge,
                        .receive_sges = asked.srq == nullptr ? asked.cap.max_recv_sge : 0,
                        .inline_max = asked.cap.max_inline_data},
                       place);
    });
}

void Lint::look_at_order() {
    if (!wishes_.any_order || !order_.posts()) return;
    tell([](lint::Linter& linter, lint::Place place) { linter.trusts_order(place); });
}

void Lint::qp_made(Qp& qp) {
    const ibv_qp& base = qp.base.qp_base;
    tell([&](lint::Linter& linter, lint::Place place) {
        qps_[base.qp_num] = &qp;
        linter.qp_made({.qpn = base.qp_num,
                        .type = type_of(base.qp_type),
                        .pd = base.pd == nullptr ? 0 : pd_of(base.pd).id.raw,
                        .send_max = qp.capabilities.max_send_wr,
                        .inline_max = qp.capabilities.max_inline_data,
                        .datagram_max = context_of(base.context).mtu,
                        .send_cq = base.send_cq,
                        .receive_cq = base.recv_cq,
                        .srq = base.srq,
                        .one_thread = base.pd != nullptr && pd_of(base.pd).one_thread},
                       place);
    });
}

void Lint::qp_destroyed(std::uint32_t qpn) {
    tell_quickly([&](lint::Linter& linter) {
        qps_.erase(qpn);
        std::erase_if(notices_seen_, [qpn](const auto& seen) { return seen.first.first == qpn; });
        linter.qp_destroyed(qpn);
    });
}

void Lint::modified(Qp& qp, const ibv_qp_attr& attributes, int mask, transport::QpState from,
                    const Error& why) {
    look_at_notices();  // Those of a connection that ends now are not of the next one.
    const auto type = static_cast<transport::QpType>(qp.base.qp_base.qp_type);
    lint::Modify told;
    told.qpn = qp.base.qp_base.qp_num;
    auto to = from;
    if ((mask & IBV_QP_STATE) != 0 && attributes.qp_state <= IBV_QPS_ERR)
        to = static_cast<transport::QpState>(attributes.qp_state);
    told.to = state_of(to);
    told.refused = why.code != 0;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) told.reads = attributes.max_rd_atomic;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) told.served = attributes.max_dest_rd_atomic;
    if (told.refused) {
        told.from_name = transport::name_of(from);
        told.to_name = transport::name_of(to);
        told.why = why.why;
        const transport::Transition rule = transport::transition(type, from, to);
        const auto given = static_cast<std::uint32_t>(mask);
        if (rule.allowed) {
            told.missing = names(rule.required.raw & ~given);
            told.unwanted = names(given & ~(rule.required.raw | rule.optional.raw | IBV_QP_STATE));
        }
    }
    tell([&](lint::Linter& linter, lint::Place place) {
        told.place = place;
        linter.modified(told);
    });
}

// The device's own words, with the peer's part if the peer is of this machine. The first failure
// of a queue pair is the one to ask about: what comes after it is flushed.
//
// Our lock is held while the queue pair is looked at: ibv_destroy_qp in another thread takes it
// before it frees anything. Other processes are asked without it.
void Lint::look_for_reason(std::uint32_t qpn, lint::Completion& done) {
    Instance& instance = Instance::get();
    std::optional<Failure> failure;
    tell_quickly([&](lint::Linter& linter) {
        const auto found = qps_.find(qpn);
        const lint::QueuePair* known = linter.qp(qpn);
        if (found != qps_.end() && known != nullptr && !known->failed)
            failure = find_failure(instance, *found->second);
    });
    if (!failure) return;
    const int error = errno;
    std::string out;
    {
        const Uncancelled part;
        (void)with_memory([&] {
            done.why = exchanged_numbers(instance, *failure);
            done.exchanged = !done.why.empty();
            if (!done.exchanged) out = explain(instance, *failure);
        });
    }
    errno = error;
    if (done.exchanged) return;
    const std::size_t head = out.find("): ");  // Which request, and its status: said already.
    done.why = head == std::string::npos ? out : out.substr(head + 3);
}

void Lint::completed(std::uint32_t qpn, std::uint64_t wr_id, bool receive, int status,
                     std::optional<std::uint32_t> immediate) {
    const auto known = static_cast<transport::WcStatus>(status);
    lint::Completion done{.qpn = qpn,
                          .wr_id = wr_id,
                          .receive = receive,
                          .status = status,
                          .status_name = transport::name(known),
                          .why = {},
                          .immediate = immediate,
                          .exchanged = false};
    if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR) look_for_reason(qpn, done);
    tell_quickly([&](lint::Linter& linter) { linter.completed(done); });
}

void Lint::count_poll() {
    if (polls_.fetch_add(1, std::memory_order_relaxed) % kPollsBetweenLooks == 0) look_at_notices();
}

void Lint::take_notices(const Notices& all) {
    for (const transport::Notice& notice : all) {
        const std::optional<lint::NoticeKind> kind = kind_of(notice.kind);
        if (!kind || linter_.qp(notice.qpn.raw) == nullptr) continue;
        const auto key = std::pair(notice.qpn.raw, static_cast<std::uint8_t>(notice.kind));
        if (std::exchange(notices_seen_[key], notice.count) == notice.count) continue;
        linter_.noticed({*kind, notice.qpn.raw, transport::describe(notice)});
    }
}

void Lint::look_at_notices() {
    for (std::size_t i = 0; i < process_.shard_count(); ++i) {
        Notices all;
        {
            process::Shard::Session session(process_.shard(i));
            all = session.engine().reasons().notices.all();
        }
        tell_quickly([&](lint::Linter&) { take_notices(all); });
    }
}

void Lint::look_at_exit() {
    const Uncancelled part;
    (void)with_memory([this] {
        for (std::size_t i = 0; i < process_.shard_count(); ++i) {
            Notices all;
            const bool looked = process_.shard(i).inspect(
                process::kExitPatience,
                [&](device::Engine& engine) { all = engine.reasons().notices.all(); });
            if (!looked) return;
            const std::unique_lock lock(mutex_, std::try_to_lock);
            if (!lock.owns_lock()) return;
            take_notices(all);
        }
    });
}

// A thread that has fetched an event may be about to acknowledge it.
void Lint::await_acknowledgements(const void* cq) {
    constexpr int kLooks = 100;
    const Uncancelled part;
    for (int i = 0; i < kLooks; ++i) {
        bool missing = false;
        tell_quickly([&](lint::Linter& linter) { missing = linter.misses_acknowledgements(cq); });
        if (!missing) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

}  // namespace feroce::verbs
