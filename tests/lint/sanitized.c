/* A correct program for MSan, TSan and Valgrind: two queue pairs of one process, one thread that
 * sends and one that receives. Every byte that the library or the device wrote decides a branch.
 * With an argument it errs once: `unset` reads a byte of registered memory that nobody wrote,
 * `race` has both threads write one. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kRounds = 30, kBytes = 5000, kPatience = 60 };

struct end {
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    struct ibv_mr* mr;
    unsigned char* memory; /* Never written by the program where the device writes. */
};

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_comp_channel* channel;
static struct end a, b;
static int race;
static unsigned shared;
static int handed[kRounds]; /* Each is written before a send and read after its receive. */

static void need(int good, const char* what) {
    if (good) return;
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

static void open_end(struct end* e) {
    struct ibv_qp_init_attr init;
    memset(&init, 0, sizeof init);
    e->memory = malloc(2 * kBytes);
    e->cq = ibv_create_cq(context, 16, NULL, e == &b ? channel : NULL, 0);
    need(e->cq != NULL && e->cq->cqe >= 16, "ibv_create_cq");
    e->mr = ibv_reg_mr(pd, e->memory, 2 * kBytes,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC);
    need(e->mr != NULL && e->mr->length == 2 * kBytes, "ibv_reg_mr");
    init.send_cq = init.recv_cq = e->cq;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = init.cap.max_recv_wr = 4;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    e->qp = ibv_create_qp(pd, &init);
    need(e->qp != NULL && init.cap.max_send_wr >= 4, "ibv_create_qp");
}

static void move(struct end* e, struct ibv_qp_attr* attr, enum ibv_qp_state state, int mask) {
    attr->qp_state = state;
    need(ibv_modify_qp(e->qp, attr, IBV_QP_STATE | mask) == 0, "ibv_modify_qp");
}

static void join(struct end* e, uint32_t peer) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    memset(&attr, 0, sizeof attr);
    attr.port_num = 1;
    attr.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.timeout = 16;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    need(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0, "ibv_query_gid");
    move(e, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    move(e, &attr, IBV_QPS_RTR,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER);
    move(e, &attr, IBV_QPS_RTS,
         IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC);
    need(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RTS &&
             init.qp_type == IBV_QPT_RC,
         "ibv_query_qp");
}

static void post_receive(struct end* e, uint64_t id) {
    struct ibv_sge sge = {(uintptr_t)e->memory, kBytes, e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    need(ibv_post_recv(e->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static void post(struct end* e, struct end* peer, enum ibv_wr_opcode opcode, uint32_t bytes,
                 size_t offset) {
    struct ibv_sge sge = {(uintptr_t)e->memory + offset, bytes, e->mr->lkey};
    struct ibv_send_wr wr, *bad;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)peer->memory;
        wr.wr.atomic.rkey = peer->mr->rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)peer->memory;
        wr.wr.rdma.rkey = peer->mr->rkey;
    }
    need(ibv_post_send(e->qp, &wr, &bad) == 0, "ibv_post_send");
}

static struct ibv_wc await(struct end* e) {
    struct ibv_wc wc; /* Not initialised. */
    const time_t end = time(NULL) + kPatience;
    while (ibv_poll_cq(e->cq, 1, &wc) == 0) need(time(NULL) < end, "a completion in time");
    need(wc.status == IBV_WC_SUCCESS, "a request");
    return wc;
}

/* Sums up what has arrived; waits for the first one by an event. */
static void* receiver(void* unused) {
    unsigned long sum = 0;
    if (race) shared += 1;
    struct ibv_cq* cq;
    void* cq_context;
    for (int i = 0; i < kRounds; ++i) {
        if (i == 0) {
            need(ibv_get_cq_event(channel, &cq, &cq_context) == 0 && cq == b.cq &&
                     cq_context == NULL,
                 "ibv_get_cq_event");
            ibv_ack_cq_events(cq, 1);
        }
        struct ibv_wc wc = await(&b);
        need(wc.opcode == IBV_WC_RECV && wc.byte_len == kBytes && wc.wr_id == (uint64_t)i,
             "receive");
        for (int k = 0; k < kBytes; ++k) need(b.memory[k] == (unsigned char)(i + k), "the message");
        for (int k = 0; k < kBytes; ++k) sum += b.memory[k];
        need(handed[i] == i, "what was written before the send");
        b.memory[0] = 1; /* It is the program's again. */
        if (i + 1 < kRounds) post_receive(&b, (uint64_t)i + 1);
    }
    need(sum > 0, "the sum");
    return unused;
}

static void send_all(void) {
    if (race) shared += 2;
    for (int i = 0; i < kRounds; ++i) {
        for (int k = 0; k < kBytes; ++k) a.memory[k] = (unsigned char)(i + k);
        handed[i] = i;
        post(&a, &b, IBV_WR_SEND, kBytes, 0);
        need(await(&a).wr_id == IBV_WR_SEND, "send");
    }
}

/* What the device writes here: the answers of a READ and of an atomic. */
static void fetch_all(void) {
    uint64_t before;
    memset(b.memory, 7, kBytes);
    post(&a, &b, IBV_WR_RDMA_READ, kBytes, kBytes);
    need(await(&a).wr_id == IBV_WR_RDMA_READ, "read");
    for (int k = 0; k < kBytes; ++k) need(a.memory[kBytes + k] == 7, "what was read");
    post(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, kBytes);
    need(await(&a).wr_id == IBV_WR_ATOMIC_FETCH_AND_ADD, "atomic");
    memcpy(&before, a.memory + kBytes, sizeof before);
    need(before == 0x0707070707070707, "the word before");
    need(b.memory[0] != 0, "the word after");
}

int main(int words, char** word) {
    int count;
    race = words > 1 && strcmp(word[1], "race") == 0;
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    pthread_t other;
    struct ibv_device** list = ibv_get_device_list(&count);
    need(list != NULL && count > 0, "ibv_get_device_list");
    context = ibv_open_device(list[0]);
    need(context != NULL && strlen(ibv_get_device_name(list[0])) > 0, "ibv_open_device");
    ibv_free_device_list(list);
    need(ibv_query_device(context, &device) == 0 && device.max_qp > 0, "ibv_query_device");
    need(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE, "ibv_query_port");
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    open_end(&a);
    open_end(&b);
    join(&a, b.qp->qp_num);
    join(&b, a.qp->qp_num);
    need(ibv_req_notify_cq(b.cq, 0) == 0, "ibv_req_notify_cq");
    post_receive(&b, 0);
    need(pthread_create(&other, NULL, receiver, NULL) == 0, "pthread_create");
    send_all();
    need(pthread_join(other, NULL) == 0, "pthread_join");
    fetch_all();
    if (words > 1 && strcmp(word[1], "unset") == 0 && b.memory[2 * kBytes - 1] == 3) puts("three");
    for (struct end* e = &a;; e = &b) {
        need(ibv_destroy_qp(e->qp) == 0 && ibv_dereg_mr(e->mr) == 0 && ibv_destroy_cq(e->cq) == 0,
             "destroy");
        free(e->memory);
        if (e == &b) break;
    }
    need(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0 &&
             ibv_close_device(context) == 0,
         "close");
    puts("done");
    return 0;
}
