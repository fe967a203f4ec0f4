// Small programs with one mistake each, and a correct one: lint_mistakes NAME. Each ends with
// status 0 if it could make its mistake; lint_test.py expects that lint has found it.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "ends.hpp"
#include "shared.hpp"

using namespace lint_programs;

namespace {

void clean() {
    Ends ends;
    ibv_wc wc{};
    for (std::uint64_t i = 0; i < 100; ++i) {
        need(ends.b.receive(ends.b.sge(64), i) == 0, "ibv_post_recv");
        ends.a.memory[0] = static_cast<std::uint8_t>(i);
        need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
        need(ends.a.poll(wc) && wc.status == IBV_WC_SUCCESS, "send");
        need(ends.b.poll(wc) && wc.status == IBV_WC_SUCCESS, "receive");
        need(ends.b.memory[0] == i, "what arrived");
    }
    need(::ibv_req_notify_cq(ends.b.cq, 0) == 0, "ibv_req_notify_cq");
    need(ends.b.receive(ends.b.sge(64)) == 0, "ibv_post_recv");
    need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
    need(ends.a.poll(wc), "send");
    ibv_cq* cq = nullptr;
    void* given = nullptr;
    need(::ibv_get_cq_event(ends.b.channel, &cq, &given) == 0, "ibv_get_cq_event");
    ::ibv_ack_cq_events(cq, 1);
    need(ends.b.poll(wc), "receive");
    ends.close();
}

// --- 1
void buffer_changed() {
    Ends ends;
    need(ends.b.receive(ends.b.sge(64)) == 0, "ibv_post_recv");
    need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
    ends.a.memory[9] = 1;
    ibv_wc wc{};
    need(ends.a.poll(wc), "send");
    ends.close();
}

// The target of a READ is sent on: before it is there, or when it is.
void send_on(Ends& ends, bool early, unsigned flags) {
    ibv_wc wc{};
    need(ends.b.receive(ends.b.sge(64, 4096)) == 0, "ibv_post_recv");
    ends.b.memory[0] = 5;
    need(ends.a.send(read_from(ends.b), ends.a.sge(64)) == 0, "ibv_post_send");
    if (!early) need(ends.a.poll(wc) && wc.status == IBV_WC_SUCCESS, "read");
    ibv_send_wr wr = signaled(IBV_WR_SEND, 8);
    wr.send_flags |= flags;
    need(ends.a.send(wr, ends.a.sge(64)) == 0, "ibv_post_send");
    for (int left = early ? 2 : 1; left > 0; --left)
        need(ends.a.poll(wc) && wc.status == IBV_WC_SUCCESS, "a completion");
    need(ends.b.poll(wc) && wc.status == IBV_WC_SUCCESS, "receive");
}

// The soft device may be quicker than the program; not always.
constexpr int kEarlyRounds = 100;

void read_early() {
    Ends ends;
    for (int i = 0; i < kEarlyRounds; ++i) send_on(ends, true, 0);
    ends.close();
}

void read_in_time() {
    Ends ends;
    for (const unsigned flags : {0, int{IBV_SEND_INLINE}}) {
        send_on(ends, false, flags);
        need(ends.b.memory[4096] == 5, "what arrived");
    }
    for (int i = 0; i < kEarlyRounds; ++i) {
        ends.a.memory[0] = 0;
        send_on(ends, true, IBV_SEND_FENCE);
        need(ends.b.memory[4096] == 5, "what arrived");
    }
    ends.close();
}

// A pointer of the peer is followed before it is there, until that fails.
void pointer_early() {
    Ends ends;
    ibv_wc wc{};
    ibv_send_wr wr = write_to(ends.b, 8);
    std::memcpy(ends.b.memory.data(), &wr.wr.rdma.remote_addr, sizeof wr.wr.rdma.remote_addr);
    for (int i = 0; i < kEarlyRounds && wc.status == IBV_WC_SUCCESS; ++i) {
        need(ends.a.send(read_from(ends.b), ends.a.sge(16)) == 0, "ibv_post_send");
        std::uint64_t pointer = 0;
        std::memcpy(&pointer, ends.a.memory.data(), sizeof pointer);
        wr.wr.rdma.remote_addr = pointer + 1024;
        need(ends.a.send(wr, ends.a.sge(8, 64)) == 0, "ibv_post_send");
        need(ends.a.poll(wc) && wc.status == IBV_WC_SUCCESS, "read");
        need(ends.a.poll(wc), "write");
    }
    ends.close();
}

// Correct: a READ that fails leaves its target as it was.
void failed_read() {
    Ends ends;
    ends.a.memory[3] = 77;
    ibv_qp_attr error{};
    ends.a.move(error, IBV_QPS_ERR, 0);
    need(ends.a.send(read_from(ends.b), ends.a.sge(64)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc) && wc.status == IBV_WC_WR_FLUSH_ERR, "read");
    need(ends.a.memory[3] == 77, "the memory");
    ends.close();
}

// The device cannot write all of the target; the READ is flushed before it tries.
void half_read() {
    Ends ends;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* pages =
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(pages != MAP_FAILED, "mmap");
    std::memset(pages, 77, 2 * page);
    ibv_mr* mr = ::ibv_reg_mr(ends.a.pd, pages, 2 * page, kAccess);
    need(mr != nullptr, "ibv_reg_mr");
    auto* target = static_cast<std::uint8_t*>(pages) + page - 28;
    need(::mprotect(target + 28, page, PROT_READ) == 0, "mprotect");
    ibv_qp_attr error{};
    ends.a.move(error, IBV_QPS_ERR, 0);
    const ibv_sge entry = {reinterpret_cast<std::uintptr_t>(target), 64, mr->lkey};
    need(ends.a.send(read_from(ends.b), entry) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc) && wc.status == IBV_WC_WR_FLUSH_ERR, "read");
    need(std::count(target, target + 64, 77) == 64, "the memory");
    need(::ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
    ends.close();
}

// --- 2
void no_receive() {
    Ends ends;
    need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
    ibv_wc wc{};
    (void)ends.a.poll(wc, std::chrono::seconds(1));
    ends.close();
}

void rnr_exceeded() {
    Wishes impatient;
    impatient.rnr_retry = 1;
    Ends ends(impatient);
    need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc) && wc.status == IBV_WC_RNR_RETRY_EXC_ERR, "send");
    ends.close();
}

// --- 3
void reg_flags() {
    Ends ends;
    static std::uint64_t word = 0;
    need(::ibv_reg_mr(ends.a.pd, &word, sizeof word, IBV_ACCESS_REMOTE_WRITE) == nullptr, "reg");
    ends.close();
}

void remote_access() {
    Wishes closed;
    closed.access = IBV_ACCESS_LOCAL_WRITE;
    Ends ends({}, closed);
    need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc) && wc.status != IBV_WC_SUCCESS, "write");
    ends.close();
}

// One thread polls the failure while another destroys the queue pair. The rest is left to exit.
void destroyed_while_polled() {
    Wishes closed;
    closed.access = IBV_ACCESS_LOCAL_WRITE;
    for (int i = 0; i < 50; ++i) {
        Ends ends({}, closed);
        std::atomic<bool> done{false};
        std::thread polling([&] {
            ibv_wc wc{};
            while (!done.load() && ::ibv_poll_cq(ends.a.cq, 1, &wc) == 0) continue;
        });
        need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
        ibv_qp_attr now{};
        ibv_qp_init_attr made{};
        while (::ibv_query_qp(ends.a.qp, &now, IBV_QP_STATE, &made) == 0 &&
               now.qp_state != IBV_QPS_ERR)
            continue;
        need(::ibv_destroy_qp(ends.a.qp) == 0, "ibv_destroy_qp");
        done.store(true);
        polling.join();
    }
}

// --- 4
void modify_mask() {
    Ends ends;
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RESET;
    need(::ibv_modify_qp(ends.a.qp, &a, IBV_QP_STATE) == 0, "RESET");
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    need(::ibv_modify_qp(ends.a.qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_SQ_PSN) != 0, "INIT");
    ends.close();
}

void not_global() {
    Ends ends;
    ibv_qp_attr a{};
    ends.a.move(a, IBV_QPS_RESET, 0);
    a.port_num = 1;
    ends.a.move(a, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.ah_attr.port_num = 1;
    need(::ibv_modify_qp(ends.a.qp, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0,
         "RTR");
    ends.close();
}

// --- 5
void cq_too_small() {
    Wishes small;
    small.cqe = 4;
    Ends ends({}, small);
    for (std::uint64_t i = 0; i < 8; ++i)
        need(ends.b.receive(ends.b.sge(64), i) == 0, "ibv_post_recv");
    ends.close();
}

// --- 6
void unsignaled() {
    Wishes few;
    few.sends = 4;
    Ends ends(few);
    for (int i = 0; i < 8; ++i) {
        ibv_send_wr wr = write_to(ends.b);
        wr.send_flags = 0;
        // The soft device frees slots when the peer has acknowledged.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (ends.a.send(wr, ends.a.sge(8)) != 0) {
            need(std::chrono::steady_clock::now() < end, "ibv_post_send");
            ibv_wc wc{};
            (void)::ibv_poll_cq(ends.a.cq, 1, &wc);
        }
    }
    ends.close();
}

// --- 7
void unacknowledged() {
    Ends ends;
    need(::ibv_req_notify_cq(ends.a.cq, 0) == 0, "ibv_req_notify_cq");
    need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
    ibv_cq* cq = nullptr;
    void* given = nullptr;
    need(::ibv_get_cq_event(ends.a.channel, &cq, &given) == 0, "ibv_get_cq_event");
    ibv_wc wc{};
    need(ends.a.poll(wc), "write");
    ends.close();  // Does not return: lint_test.py has lint abort it.
}

// An id whose event was not acknowledged cannot be destroyed.
struct Resolved {
    Resolved() {
        need(channel != nullptr, "rdma_create_event_channel");
        need(::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
        sockaddr_in there{};
        there.sin_family = AF_INET;
        there.sin_port = htons(7471);
        there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        auto* address = reinterpret_cast<sockaddr*>(&there);
        need(::rdma_resolve_addr(id, nullptr, address, 1000) == 0, "rdma_resolve_addr");
        need(::rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
    }

    rdma_event_channel* channel = ::rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_cm_event* event = nullptr;
};

void cm_unacknowledged() {
    const Resolved made;
    need(::rdma_destroy_id(made.id) == 0, "rdma_destroy_id");  // For ever, but for lint.
    ::rdma_destroy_event_channel(made.channel);
}

void cm_acknowledged() {
    const Resolved made;
    need(::rdma_ack_cm_event(made.event) == 0, "rdma_ack_cm_event");
    need(::rdma_destroy_id(made.id) == 0, "rdma_destroy_id");
    ::rdma_destroy_event_channel(made.channel);
}

// Correct: another thread is between the event and its acknowledgement.
void late_acknowledgement() {
    Ends ends;
    need(::ibv_req_notify_cq(ends.a.cq, 0) == 0, "ibv_req_notify_cq");
    need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
    ibv_cq* cq = nullptr;
    void* given = nullptr;
    need(::ibv_get_cq_event(ends.a.channel, &cq, &given) == 0, "ibv_get_cq_event");
    ibv_wc wc{};
    need(ends.a.poll(wc), "write");
    std::thread late([cq] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ::ibv_ack_cq_events(cq, 1);
    });
    ends.close();
    late.join();
}

// Ends within a handler, wherever in a call the signal came.
void exit_in_handler() {
    Ends ends;
    ::signal(SIGALRM, [](int) { std::exit(0); });
    const itimerval soon{{}, {0, 20'000}};
    need(::setitimer(ITIMER_REAL, &soon, nullptr) == 0, "setitimer");
    ibv_wc wc{};
    for (;;) need(::ibv_poll_cq(ends.a.cq, 1, &wc) == 0, "ibv_poll_cq");
}

// --- 8
void missed_event() {
    Ends ends;
    need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc), "write");
    need(ends.b.receive(ends.b.sge(64)) == 0, "ibv_post_recv");
    need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
    need(ends.a.poll(wc), "send");  // Acknowledged: the receive has completed.
    need(::ibv_req_notify_cq(ends.b.cq, 0) == 0, "ibv_req_notify_cq");
    ibv_cq* cq = nullptr;
    void* given = nullptr;
    (void)::ibv_get_cq_event(ends.b.channel, &cq, &given);  // For ever, if lint does not abort.
}

// --- 9
void length_of_failure() {
    Wishes closed;
    closed.access = IBV_ACCESS_LOCAL_WRITE;
    Ends ends({}, closed);
    need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc), "write");
    (void)ends.a.receive(ends.a.sge(wc.byte_len));
    ends.close();
}

void status_ignored() {
    Wishes closed;
    closed.access = IBV_ACCESS_LOCAL_WRITE;
    Ends ends({}, closed);
    for (int i = 0; i < 12; ++i) {
        need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
        ibv_wc wc{};
        need(ends.a.poll(wc), "write");
    }
    ends.close();
}

void field_of_failure() {
    ibv_context* context = open_first();
    Wishes closed;
    closed.access = IBV_ACCESS_LOCAL_WRITE;
    Ends ends({}, closed);
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 8;
    attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
    ibv_cq_ex* cq = ::ibv_create_cq_ex(ends.context, &attributes);
    need(cq != nullptr, "ibv_create_cq_ex");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = ::ibv_cq_ex_to_cq(cq);
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    ibv_qp* old = std::exchange(ends.a.qp, ::ibv_create_qp(ends.a.pd, &init));
    ends.a.connect(ends.b.qp->qp_num);
    ibv_qp_attr a{};
    ends.b.move(a, IBV_QPS_RESET, 0);
    ends.b.connect(ends.a.qp->qp_num);
    need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
    ibv_poll_cq_attr how{};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (::ibv_start_poll(cq, &how) != 0)
        need(std::chrono::steady_clock::now() < end, "ibv_start_poll");
    need(cq->status != IBV_WC_SUCCESS, "write");
    (void)::ibv_wc_read_byte_len(cq);
    ::ibv_end_poll(cq);
    need(::ibv_destroy_qp(old) == 0, "ibv_destroy_qp");
    need(::ibv_destroy_qp(ends.a.qp) == 0, "ibv_destroy_qp");
    need(::ibv_destroy_cq(::ibv_cq_ex_to_cq(cq)) == 0, "ibv_destroy_cq");
    need(::ibv_close_device(context) == 0, "ibv_close_device");
}

// --- 10
void region_in_use() {
    Ends ends;
    need(ends.b.receive(ends.b.sge(64), 12) == 0, "ibv_post_recv");
    need(ends.b.receive(ends.b.sge(64), 13) == 0, "ibv_post_recv");
    need(::ibv_dereg_mr(ends.b.mr) == 0, "ibv_dereg_mr");
}

// --- 11
void wrong_key() {
    Ends ends;
    ibv_sge sge = ends.a.sge(64);
    sge.lkey ^= 1;
    need(ends.a.send(write_to(ends.b), sge) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc), "write");
    ends.close();
}

void past_the_end() {
    Ends ends;
    const auto offset = ends.a.memory.size() - 64;
    need(ends.a.send(write_to(ends.b), ends.a.sge(160, offset)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc), "write");
    ends.close();
}

void not_writable() {
    Wishes readable;
    readable.access = 0;
    Ends ends(readable);
    need(ends.a.receive(ends.a.sge(64)) == 0, "ibv_post_recv");
    ends.close();
}

// --- 12
void inline_too_long() {
    Ends ends;
    ibv_send_wr wr = write_to(ends.b);
    wr.send_flags |= IBV_SEND_INLINE;
    need(ends.a.send(wr, ends.a.sge(65)) != 0, "ibv_post_send");
    ends.close();
}

// The device refuses what is not there, and lint has to live as long.
void inline_absent() {
    Ends ends;
    ibv_send_wr wr = write_to(ends.b);
    wr.send_flags |= IBV_SEND_INLINE;
    need(ends.a.send(wr, {8, 16, 0}) == EFAULT, "ibv_post_send");
    ends.close();
}

// --- 13
Wishes datagrams() {
    Wishes out;
    out.type = IBV_QPT_UD;
    return out;
}

ibv_ah* address_of(const Ends& ends) {
    ibv_ah_attr a{};
    a.is_global = 1;
    a.port_num = 1;
    need(::ibv_query_gid(ends.context, 1, 0, &a.grh.dgid) == 0, "ibv_query_gid");
    ibv_ah* out = ::ibv_create_ah(ends.a.pd, &a);
    need(out != nullptr, "ibv_create_ah");
    return out;
}

void send_datagram(Ends& ends, std::uint32_t bytes, std::uint32_t qkey) {
    ibv_ah* ah = address_of(ends);
    ibv_send_wr wr = signaled(IBV_WR_SEND);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = ends.b.qp->qp_num;
    wr.wr.ud.remote_qkey = qkey;
    if (ends.a.send(wr, ends.a.sge(bytes)) == 0) {
        ibv_wc wc{};
        need(ends.a.poll(wc), "send");
        (void)ends.b.poll(wc, std::chrono::seconds(1));
    }
    need(::ibv_destroy_ah(ah) == 0, "ibv_destroy_ah");
}

void grh_forgotten() {
    Ends ends(datagrams(), datagrams());
    need(ends.b.receive(ends.b.sge(32)) == 0, "ibv_post_recv");
    ends.close();
}

void grh_not_counted() {
    Ends ends(datagrams(), datagrams());
    need(ends.b.receive(ends.b.sge(64)) == 0, "ibv_post_recv");
    send_datagram(ends, 64, kQkey);
    ends.close();
}

void wrong_qkey() {
    Ends ends(datagrams(), datagrams());
    need(ends.b.receive(ends.b.sge(104)) == 0, "ibv_post_recv");
    send_datagram(ends, 64, kQkey + 1);
    ends.close();
}

void long_datagram() {
    Ends ends(datagrams(), datagrams());
    send_datagram(ends, 8192, kQkey);
    ends.close();
}

// --- 14
// The far end answers as soon as it finds the message: by its last byte, or by a completion.
struct Answers {
    Ends ends;
    static constexpr std::uint32_t kBytes = 64;
    static constexpr int kRounds = 500;           // On a busy machine few are answered in time.
    static constexpr std::size_t kAnswer = 1024;  // Where the answer is in both memories.

    // What a message is filled with: another number than the one before.
    static std::uint8_t filling(int round) { return static_cast<std::uint8_t>(1 + round % 250); }
    volatile std::uint8_t* seen(End& end, std::size_t at) const { return &end.memory[at]; }
    void await(End& end, std::size_t at, std::uint8_t wanted) const {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (*seen(end, at) != wanted) {
            need(std::chrono::steady_clock::now() < deadline, "the peer's bytes");
            std::this_thread::yield();
        }
    }
    void write(End& from, End& to, ibv_sge what, ibv_wr_opcode opcode) const {
        ibv_send_wr wr = write_to(to);
        wr.opcode = opcode;
        wr.wr.rdma.remote_addr += what.addr - from.sge(0).addr;  // At the same place there.
        need(from.send(wr, what) == 0, "ibv_post_send");
    }
    static void poll(End& end) {
        ibv_wc wc{};
        need(end.poll(wc) && wc.status == IBV_WC_SUCCESS, "a completion");
    }
    // A message from a, an answer of one word from b.
    template <class Wait>
    void run(ibv_wr_opcode opcode, Wait wait) {
        std::thread far([&] {
            for (int round = 0; round < kRounds; ++round) {
                const std::uint8_t i = filling(round);
                wait(ends.b, i);
                ends.b.memory[kAnswer] = i;
                write(ends.b, ends.a, ends.b.sge(8, kAnswer), IBV_WR_RDMA_WRITE);
                poll(ends.b);
            }
        });
        for (int round = 0; round < kRounds; ++round) {
            const std::uint8_t i = filling(round);
            std::fill_n(ends.a.memory.begin(), kBytes, i);
            write(ends.a, ends.b, ends.a.sge(kBytes), opcode);
            poll(ends.a);
            await(ends.a, kAnswer, i);
        }
        far.join();
        ends.close();
    }
};

void polled_memory() {
    Answers answers;
    answers.run(IBV_WR_RDMA_WRITE,
                [&](End& end, std::uint8_t i) { answers.await(end, Answers::kBytes - 1, i); });
}

void polled_completion() {
    Answers answers;
    need(answers.ends.b.receive(answers.ends.b.sge(8, 4096)) == 0, "ibv_post_recv");
    answers.run(IBV_WR_RDMA_WRITE_WITH_IMM, [&](End& end, std::uint8_t i) {
        Answers::poll(end);
        need(end.memory[0] == i && end.memory[Answers::kBytes - 1] == i, "what arrived");
        need(end.receive(end.sge(8, 4096)) == 0, "ibv_post_recv");
    });
}

// --- limits of cards
void make_qp(ibv_qp_type type, const ibv_qp_cap& capabilities) {
    Ends ends;
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = ends.a.cq;
    init.qp_type = type;
    init.cap = capabilities;
    ibv_qp* qp = ::ibv_create_qp(ends.a.pd, &init);
    need(qp != nullptr, "ibv_create_qp");
    need(::ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
    ends.close();
}

void long_inline() {
    make_qp(IBV_QPT_RC, {16, 16, 1, 1, 1000});
}
void short_inline() {
    make_qp(IBV_QPT_RC, {16, 16, 1, 1, 220});
}

void large_cq() {
    Wishes large;
    large.cqe = 40'000;
    Ends ends(large);
    ends.close();
}

void atomic() {
    Ends ends;
    ibv_send_wr wr = signaled(IBV_WR_ATOMIC_FETCH_AND_ADD);
    wr.wr.atomic.remote_addr = reinterpret_cast<std::uintptr_t>(ends.b.memory.data());
    wr.wr.atomic.rkey = ends.b.mr->rkey;
    need(ends.a.send(wr, ends.a.sge(8, 64)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc) && wc.status == IBV_WC_SUCCESS, "atomic");
    ends.close();
}

// --- 15
void first_psn() {
    Wishes other;
    other.first_psn = 100;
    Ends ends(other);
    need(ends.b.receive(ends.b.sge(64)) == 0, "ibv_post_recv");
    need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
    ibv_wc wc{};
    (void)ends.a.poll(wc, std::chrono::seconds(1));
    ends.close();
}

void numbers_exchanged() {
    Wishes both;
    both.exchanges = true;
    both.first_psn = 0x705123;
    Ends ends(both, both);
    need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc) && wc.status == IBV_WC_RETRY_EXC_ERR, "nobody answers");
    ends.close();
}

// The same failure without that mistake.
void peer_gone() {
    Ends ends;
    need(::ibv_destroy_qp(ends.b.qp) == 0, "ibv_destroy_qp");
    need(ends.a.send(signaled(IBV_WR_SEND), ends.a.sge(64)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc) && wc.status == IBV_WC_RETRY_EXC_ERR, "nobody answers");
}

void mtu_mismatch() {
    Wishes longer;
    longer.mtu = IBV_MTU_2048;
    Ends ends(longer);
    need(ends.a.send(write_to(ends.b), ends.a.sge(4096)) == 0, "ibv_post_send");
    ibv_wc wc{};
    need(ends.a.poll(wc) && wc.status != IBV_WC_SUCCESS, "write");
    ends.close();
}

// Numbers as immediates, by a function that brings them into some byte order.
void send_numbers(Ends& ends, std::uint32_t (*order)(std::uint32_t)) {
    ibv_wc wc{};
    for (std::uint32_t i = 1; i <= 40; ++i) {
        need(ends.b.receive(ends.b.sge(64)) == 0, "ibv_post_recv");
        ibv_send_wr wr = signaled(IBV_WR_SEND_WITH_IMM);
        wr.imm_data = order(i);
        need(ends.a.send(wr, ends.a.sge(64)) == 0, "ibv_post_send");
        need(ends.a.poll(wc) && wc.status == IBV_WC_SUCCESS, "send");
        need(ends.b.poll(wc) && wc.status == IBV_WC_SUCCESS, "receive");
    }
}

void host_order() {
    Ends ends;
    send_numbers(ends, [](std::uint32_t number) { return number; });
    ends.close();
}

void network_order() {
    Ends ends;
    send_numbers(ends, [](std::uint32_t number) { return ::htonl(number); });
    ends.close();
}

void length_of_immediate() {
    Ends ends;
    ibv_wc wc{};
    need(ends.b.receive(ends.b.sge(64)) == 0, "ibv_post_recv");
    ibv_send_wr wr = signaled(IBV_WR_SEND_WITH_IMM);
    wr.imm_data = ::htonl(64);
    need(ends.a.send(wr, ends.a.sge(64)) == 0, "ibv_post_send");
    need(ends.a.poll(wc) && ends.b.poll(wc) && wc.status == IBV_WC_SUCCESS, "receive");
    need(ends.b.send(signaled(IBV_WR_SEND), ends.b.sge(wc.imm_data)) == 0, "ibv_post_send");
    ends.close();
}

void forked() {
    Ends ends;
    const pid_t child = ::fork();
    if (child == 0) {
        const int error = ends.a.send(write_to(ends.b), ends.a.sge(8));
        ::_exit(error != 0 ? 0 : 1);
    }
    int status = -1;
    need(::waitpid(child, &status, 0) == child && status == 0, "the child");
    ends.close();
}

struct Program {
    const char* name;
    void (*run)();
};

constexpr Program kPrograms[] = {
    {"clean", clean},
    {"buffer_changed", buffer_changed},
    {"read_early", read_early},
    {"read_in_time", read_in_time},
    {"pointer_early", pointer_early},
    {"failed_read", failed_read},
    {"half_read", half_read},
    {"no_receive", no_receive},
    {"rnr_exceeded", rnr_exceeded},
    {"reg_flags", reg_flags},
    {"remote_access", remote_access},
    {"destroyed_while_polled", destroyed_while_polled},
    {"modify_mask", modify_mask},
    {"not_global", not_global},
    {"cq_too_small", cq_too_small},
    {"unsignaled", unsignaled},
    {"unacknowledged", unacknowledged},
    {"late_acknowledgement", late_acknowledgement},
    {"exit_in_handler", exit_in_handler},
    {"missed_event", missed_event},
    {"length_of_failure", length_of_failure},
    {"status_ignored", status_ignored},
    {"field_of_failure", field_of_failure},
    {"region_in_use", region_in_use},
    {"wrong_key", wrong_key},
    {"past_the_end", past_the_end},
    {"not_writable", not_writable},
    {"inline_too_long", inline_too_long},
    {"inline_absent", inline_absent},
    {"grh_forgotten", grh_forgotten},
    {"grh_not_counted", grh_not_counted},
    {"wrong_qkey", wrong_qkey},
    {"long_datagram", long_datagram},
    {"polled_memory", polled_memory},
    {"polled_completion", polled_completion},
    {"long_inline", long_inline},
    {"short_inline", short_inline},
    {"large_cq", large_cq},
    {"atomic", atomic},
    {"cm_unacknowledged", cm_unacknowledged},
    {"cm_acknowledged", cm_acknowledged},
    {"first_psn", first_psn},
    {"numbers_exchanged", numbers_exchanged},
    {"peer_gone", peer_gone},
    {"mtu_mismatch", mtu_mismatch},
    {"host_order", host_order},
    {"network_order", network_order},
    {"length_of_immediate", length_of_immediate},
    {"cq_of_two_threads", cq_of_two_threads},
    {"qp_of_two_threads", qp_of_two_threads},
    {"list_of_two_threads", list_of_two_threads},
    {"locked_by_two_threads", locked_by_two_threads},
    {"request_used_again", request_used_again},
    {"forked", forked},
};

}  // namespace

int main(int count, char** arguments) {
    for (const Program& program : kPrograms)
        if (count > 1 && std::strcmp(program.name, arguments[1]) == 0) {
            program.run();
            return 0;
        }
    for (const Program& program : kPrograms) std::puts(program.name);
    return 2;
}
