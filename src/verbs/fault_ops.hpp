// The operations of the data path with the faults of calls that FEROCE_FAULTS asks for. They stand
// in the tables instead of the plain ones, or of lint's, from when a device is opened or an object
// is made: a program without such faults does not come by here
// (docs/adr/0031-faults-of-calls.md). Other calls meet their faults in process/abi_call.hpp.
#pragma once

#include <cerrno>

#include "verbs/abi.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {

bool faults_wanted();

// Each is asked before its call is made, and returns its errno, or 0: then the call is made.
int fault_of(ibv_qp* qp, const char* call);
int fault_of(ibv_srq* srq, const char* call);
int fault_of(ibv_cq* cq, const char* call);
struct PollFault {
    int error = 0;
    bool none = false;  // Nothing is to be taken: the queue is empty, or its completions are late.
};
// Only a poll that would find something is counted: how often a program polls in vain hangs on
// time.
PollFault fault_of_poll(ibv_cq* cq, const char* call);
// After a queue was armed: completions that came late are told of.
void tell_late(ibv_cq* cq);

template <auto kPostSend, auto kPostRecv, auto kPostSrqRecv, auto kPoll, auto kNotify>
struct FaultedOps {
    static int do_post_send(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
        if (const int code = fault_of(qp, "ibv_post_send"); code != 0) {
            *bad = list;
            return code;
        }
        return kPostSend(qp, list, bad);
    }
    static int do_post_recv(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
        if (const int code = fault_of(qp, "ibv_post_recv"); code != 0) {
            *bad = list;
            return code;
        }
        return kPostRecv(qp, list, bad);
    }
    static int do_post_srq_recv(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
        if (const int code = fault_of(srq, "ibv_post_srq_recv"); code != 0) {
            *bad = list;
            return code;
        }
        return kPostSrqRecv(srq, list, bad);
    }
    static int do_bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
        const int code = fault_of(qp, "ibv_bind_mw");
        return code != 0 ? code : bind_mw(qp, mw, bind);
    }
    static int do_poll_cq(ibv_cq* cq, int wanted, ibv_wc* out) {
        const PollFault fault = fault_of_poll(cq, "ibv_poll_cq");
        if (fault.error != 0) return -fault.error;
        return kPoll(cq, fault.none ? 0 : wanted, out);  // Lint hears of every poll.
    }
    static int do_req_notify_cq(ibv_cq* cq, int solicited_only) {
        if (const int code = fault_of(cq, "ibv_req_notify_cq"); code != 0) return code;
        const int code = kNotify(cq, solicited_only);
        if (code == 0) tell_late(cq);
        return code;
    }

    static void fill(ibv_context_ops& ops) {
        ops.post_send = do_post_send;
        ops.post_recv = do_post_recv;
        ops.post_srq_recv = do_post_srq_recv;
        ops.bind_mw = do_bind_mw;
        ops.poll_cq = do_poll_cq;
        ops.req_notify_cq = do_req_notify_cq;
    }
};

// ibv_wr_complete: the requests are dropped, as by ibv_wr_abort.
template <auto kComplete>
int faulted_wr_complete(ibv_qp_ex* qp) {
    const int code = fault_of(&qp->qp_base, "ibv_wr_complete");
    if (code == 0) return kComplete(qp);
    qp->wr_abort(qp);
    return code;
}

template <auto kStart>
int faulted_start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
    const PollFault fault = fault_of_poll(ibv_cq_ex_to_cq(cq), "ibv_start_poll");
    if (fault.error != 0) return fault.error;
    return fault.none ? ENOENT : kStart(cq, attributes);
}

template <auto kNext>
int faulted_next_poll(ibv_cq_ex* cq) {
    const PollFault fault = fault_of_poll(ibv_cq_ex_to_cq(cq), "ibv_next_poll");
    if (fault.error != 0) return fault.error;
    return fault.none ? ENOENT : kNext(cq);
}

}  // namespace feroce::verbs
