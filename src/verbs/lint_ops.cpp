// The operations of the data path with lint around them. They stand in a context's table instead
// of the plain ones, from when it is opened: a program without lint does not come by here.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <iterator>

#include "verbs/common.hpp"
#include "verbs/fault_ops.hpp"
#include "verbs/instance.hpp"
#include "verbs/lint.hpp"
#include "verbs/lint_threads.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {
namespace {

// Null if it cannot be followed. A forked child is told: it has its parent's tables, and a Lint of
// its own. An object that was destroyed has no process.
Lint* lint_for(ibv_context* context, const char* call) {
    if (Lint* lint = lint_of(context)) return lint;
    if (context_of(context).process == nullptr) return nullptr;
    if (Lint* own = Instance::get().lint.get())
        own->tell([call](lint::Linter& linter, lint::Place place) {
            linter.used_after_fork(call, place);
        });
    return nullptr;
}

// Not by the list: the program may use requests for something else that the device took.
std::size_t count_until(const Lint::Requests& requests, const void* end) {
    const auto found = std::find_if(requests.begin(), requests.end(),
                                    [end](const auto& request) { return request.given == end; });
    return static_cast<std::size_t>(found - requests.begin());
}

// Tells of `requests`, posts, and takes back what the device did not take: all after `accepted()`.
template <class Post, class Accepted>
int around_post(Lint& lint, Lint::Requests& requests, std::uint32_t qpn, Post post,
                Accepted accepted) {
    const bool sends = !requests.empty() && requests[0].op != lint::Op::Receive;
    if (sends) lint.look_at_order();
    lint.tell([&](lint::Linter& linter, lint::Place place) {
        for (lint::Request& request : requests) request.place = place;
        linter.posts(qpn, requests);
    });
    const int error = post();
    const std::size_t taken = error == 0 ? requests.size() : accepted();
    lint.tell([&](lint::Linter& linter, lint::Place place) {
        if (taken < requests.size())
            linter.refused(qpn, std::span<const lint::Request>(requests).subspan(taken));
        if (taken > 0) linter.posted(qpn, place, sends);
    });
    return error;
}

// Without memory for the lint the program goes on without it.
template <class Make>
bool made(Lint::Requests& into, Make make) {
    const Uncancelled part;
    return with_memory([&] { into = make(); });
}

bool one_thread(const ibv_qp& qp) {
    return qp.pd != nullptr && pd_of(qp.pd).one_thread;
}

int linted_post_send(ibv_qp* base, ibv_send_wr* list, ibv_send_wr** bad) {
    Lint* lint = lint_for(base->context, "ibv_post_send");
    if (lint == nullptr) return post_send(base, list, bad);
    const LintTurn turn(*lint, base->qp_num, one_thread(*base), "ibv_post_send");
    watch_list<ibv_send_wr>(*lint, list, "ibv_post_send");
    Lint::Requests requests;
    if (!made(requests, [&] { return lint->requests_of(qp_of(base), list); }))
        return post_send(base, list, bad);
    return around_post(
        *lint, requests, base->qp_num, [&] { return post_send(base, list, bad); },
        [&] { return count_until(requests, *bad); });
}

int linted_post_recv(ibv_qp* base, ibv_recv_wr* list, ibv_recv_wr** bad) {
    Lint* lint = lint_for(base->context, "ibv_post_recv");
    if (lint == nullptr) return post_recv(base, list, bad);
    const LintTurn turn(*lint, base->qp_num, one_thread(*base), "ibv_post_recv");
    watch_list<ibv_recv_wr>(*lint, list, "ibv_post_recv");
    Lint::Requests requests;
    if (!made(requests, [&] { return lint->requests_of(base->pd, list); }))
        return post_recv(base, list, bad);
    return around_post(
        *lint, requests, base->qp_num, [&] { return post_recv(base, list, bad); },
        [&] { return count_until(requests, *bad); });
}

int linted_post_srq_recv(ibv_srq* base, ibv_recv_wr* list, ibv_recv_wr** bad) {
    Lint* lint = lint_for(base->context, "ibv_post_srq_recv");
    Lint::Requests requests;
    if (lint == nullptr || !made(requests, [&] { return lint->requests_of(base->pd, list); }))
        return post_srq_recv(base, list, bad);
    lint->tell([&](lint::Linter& linter, lint::Place place) {
        for (lint::Request& request : requests) request.place = place;
        // Completions of an XRC queue name a target queue pair, maybe of another process: they do
        // not tell which queue gave the receive.
        linter.posts_shared(base, requests, srq_of(base).xrcd == nullptr);
    });
    const int error = post_srq_recv(base, list, bad);
    if (error == 0) return 0;
    const std::size_t taken = count_until(requests, *bad);
    lint->tell_quickly([&](lint::Linter& linter) {
        linter.refused_shared(base, std::span<const lint::Request>(requests).subspan(taken));
    });
    return error;
}

// What has no meaning in a failed completion gets values that show.
void poison(ibv_wc& wc) {
    wc.byte_len = lint::kPoison;
    wc.imm_data = lint::kPoison;
    wc.src_qp = lint::kPoison & 0xff'ffff;
    wc.opcode = static_cast<ibv_wc_opcode>(0x7f);
}

std::optional<std::uint32_t> immediate_of(const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS || (wc.wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return wc.imm_data;
}

int linted_poll_cq(ibv_cq* base, int wanted, ibv_wc* out) {
    Lint* lint = lint_for(base->context, "ibv_poll_cq");
    if (lint == nullptr) return poll_cq(base, wanted, out);
    const bool promised = cq_of(base).one_thread;
    const LintTurn<lint::Handle> turn(*lint, base, promised, "ibv_poll_cq");
    const int count = poll_cq(base, wanted, out);
    lint->count_poll();
    lint->tell_quickly([&](lint::Linter& linter) { linter.polled(base); });
    for (int i = 0; i < count; ++i) {
        ibv_wc& wc = out[i];
        lint->completed(wc.qp_num, wc.wr_id, (wc.opcode & IBV_WC_RECV) != 0, wc.status,
                        immediate_of(wc));
        if (wc.status != IBV_WC_SUCCESS) poison(wc);
    }
    return count;
}

int linted_req_notify_cq(ibv_cq* base, int solicited_only) {
    if (Lint* lint = lint_of(base->context))
        lint->tell([&](lint::Linter& linter, lint::Place place) {
            linter.armed(base, cq_of(base).queue->size(), place);
        });
    return req_notify_cq(base, solicited_only);
}

}  // namespace

void fill_linted_operations(ibv_context_ops& ops) {
    ops.post_send = linted_post_send;
    ops.post_recv = linted_post_recv;
    ops.post_srq_recv = linted_post_srq_recv;
    ops.poll_cq = linted_poll_cq;
    ops.req_notify_cq = linted_req_notify_cq;
    if (faults_wanted())
        FaultedOps<linted_post_send, linted_post_recv, linted_post_srq_recv, linted_poll_cq,
                   linted_req_notify_cq>::fill(ops);
}

int lint_builder(ibv_qp_ex* base, int (*complete)(ibv_qp_ex*)) {
    Qp& qp = qp_of(base);
    Lint* lint = lint_of(base->qp_base.context);
    if (lint == nullptr) return complete(base);
    const ibv_qp& plain = base->qp_base;
    const LintTurn turn(*lint, plain.qp_num, one_thread(plain), "ibv_wr_complete");
    Lint::Requests requests;
    if (!made(requests, [&] { return lint->requests_of(qp, qp.builder); })) return complete(base);
    return around_post(
        *lint, requests, base->qp_base.qp_num, [&] { return complete(base); },
        [] { return std::size_t{0}; });  // All or none.
}

void lint_sleep(Lint& lint, ibv_comp_channel* channel) {
    lint.look_at_notices();
    if ((::fcntl(channel->fd, F_GETFL) & O_NONBLOCK) != 0) return;
    pollfd events{.fd = channel->fd, .events = POLLIN, .revents = 0};
    if (::poll(&events, 1, 0) == 0)
        lint.tell_quickly([&](lint::Linter& linter) { linter.sleeps(channel); });
}

}  // namespace feroce::verbs
