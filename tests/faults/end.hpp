// A queue pair that is connected to itself, made step by step: each step may fail, and what was
// made before it is destroyed. As programs do it, or should.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace faults {

inline int trouble = 0;  // How often a program found what it did not expect.

// Says what failed, for the test that reads it.
inline bool failed(const char* what, int code) {
    std::printf("%s failed: %s\n", what, ::strerrorname_np(code));
    return false;
}

inline void expect(bool good, const char* what) {
    if (good) return;
    std::printf("UNEXPECTED: %s (errno %s)\n", what, ::strerrorname_np(errno));
    ++trouble;
}

class End {
public:
    // False: a step failed and said so.
    bool open();
    bool connect();
    bool transfer();  // A message to itself.
    bool close();     // In any state. False if something could not be destroyed.
    ~End() { close(); }

    ibv_context* context = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_pd* pd = nullptr;
    ibv_mr* mr = nullptr;
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    std::array<char, 64> memory{};
    bool with_events = false;  // Sleeps for completions.

    int post_receive() {
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory.data()), 32, mr->lkey};
        ibv_recv_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        const int code = ibv_post_recv(qp, &wr, &bad);
        if (code != 0) expect(bad == &wr, "bad_wr of a receive");
        return code;
    }
    int post_send() {
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory.data()) + 32, 32, mr->lkey};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        ibv_send_wr* bad = nullptr;
        const int code = ibv_post_send(qp, &wr, &bad);
        if (code != 0) expect(bad == &wr, "bad_wr of a send");
        return code;
    }
    // Until `count` completions have come; false if a call fails, or one of them has.
    bool await_completions(int count);

private:
    bool sleep();
    int move(ibv_qp_state state);
};

inline bool End::open() {
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr) return failed("ibv_get_device_list", errno);
    if (list[0] != nullptr) context = ibv_open_device(list[0]);
    const int code = errno;
    ibv_free_device_list(list);
    if (context == nullptr) return failed("ibv_open_device", code);
    if (with_events && (channel = ibv_create_comp_channel(context)) == nullptr)
        return failed("ibv_create_comp_channel", errno);
    if ((pd = ibv_alloc_pd(context)) == nullptr) return failed("ibv_alloc_pd", errno);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr) return failed("ibv_reg_mr", errno);
    cq = ibv_create_cq(context, 8, nullptr, channel, 0);
    if (cq == nullptr) return failed("ibv_create_cq", errno);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    if ((qp = ibv_create_qp(pd, &init)) == nullptr) return failed("ibv_create_qp", errno);
    return true;
}

inline int End::move(ibv_qp_state state) {
    ibv_qp_attr a{};
    a.qp_state = state;
    a.port_num = 1;
    a.path_mtu = IBV_MTU_1024;
    a.timeout = 14;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.dest_qp_num = qp->qp_num;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    int mask = IBV_QP_STATE;
    if (state == IBV_QPS_INIT) mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (state == IBV_QPS_RTR) {
        if (ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid) != 0) return errno;
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    if (state == IBV_QPS_RTS)
        mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(qp, &a, mask);
}

inline bool End::connect() {
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
        if (const int code = move(state); code != 0) return failed("connecting", code);
    return true;
}

inline bool End::sleep() {
    ibv_cq* which = nullptr;
    void* whose = nullptr;
    if (ibv_get_cq_event(channel, &which, &whose) != 0) return failed("ibv_get_cq_event", errno);
    ibv_ack_cq_events(which, 1);
    return true;
}

inline bool End::await_completions(int count) {
    while (count > 0) {
        if (with_events)
            if (const int code = ibv_req_notify_cq(cq, 0); code != 0)
                return failed("ibv_req_notify_cq", code);
        ibv_wc wc{};
        int got = 0;
        while (count > 0 && (got = ibv_poll_cq(cq, 1, &wc)) > 0) {
            --count;
            if (wc.status != IBV_WC_SUCCESS) return failed(ibv_wc_status_str(wc.status), EIO);
        }
        if (got < 0) return failed("ibv_poll_cq", -got);
        if (count > 0 && with_events && !sleep()) return false;
    }
    return true;
}

inline bool End::transfer() {
    if (const int code = post_receive(); code != 0) return failed("ibv_post_recv", code);
    if (const int code = post_send(); code != 0) return failed("ibv_post_send", code);
    return await_completions(2);
}

inline bool End::close() {
    const int before = trouble;
    if (qp != nullptr) expect(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
    if (cq != nullptr) expect(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
    if (mr != nullptr) expect(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    if (pd != nullptr) expect(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
    if (channel != nullptr) expect(ibv_destroy_comp_channel(channel) == 0, "destroying a channel");
    if (context != nullptr) expect(ibv_close_device(context) == 0, "ibv_close_device");
    qp = nullptr;
    cq = nullptr;
    mr = nullptr;
    pd = nullptr;
    channel = nullptr;
    context = nullptr;
    return trouble == before;
}

}  // namespace faults
