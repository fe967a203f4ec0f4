// The client of wireprobe: a table of probes, each a few requests and the statuses they must have.
#include <endian.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "wireprobe.hpp"

namespace wireprobe {
namespace {

constexpr std::uint32_t kLong = 3001;  // Three packets of 1024, one of 4096.

struct Client {
    rdma_cm_id* id;
    ibv_mr* region;
    Target peer;  // In host byte order.
};

int failures = 0;

void expect(bool is_good, const char* what) {
    std::printf("%s: %s\n", is_good ? "ok" : "FAILED", what);
    if (!is_good) failures++;
}

void expect(ibv_wc_status found, ibv_wc_status wanted, const char* what) {
    std::printf("%s: %s: %s\n", found == wanted ? "ok" : "FAILED", what, ibv_wc_status_str(found));
    if (found != wanted) failures++;
}

// One work request, and its completion.
ibv_wc_status post(Client& c, ibv_send_wr request, void* start, std::uint32_t bytes) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(start), bytes, c.region->lkey};
    request.sg_list = &piece;
    request.num_sge = bytes > 0 ? 1 : 0;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(c.id->qp, &request, &bad) != 0) die("ibv_post_send");
    ibv_wc done{};
    if (rdma_get_send_comp(c.id, &done) < 0) die("rdma_get_send_comp");
    return done.status;
}

ibv_wc_status send(Client& c, ibv_wr_opcode opcode, std::uint32_t bytes, std::uint32_t extra = 0,
                   unsigned flags = 0) {
    ibv_send_wr request{};
    request.opcode = opcode;
    request.send_flags = flags;
    if (opcode == IBV_WR_SEND_WITH_INV)
        request.invalidate_rkey = extra;
    else
        request.imm_data = htobe32(extra);
    return post(c, request, buffers.local, bytes);
}

ibv_wc_status rdma(Client& c, ibv_wr_opcode opcode, std::uint32_t bytes, std::uint32_t rkey,
                   std::uint32_t immediate = 0) {
    ibv_send_wr request{};
    request.opcode = opcode;
    request.imm_data = htobe32(immediate);
    request.wr.rdma.remote_addr = c.peer.address;
    request.wr.rdma.rkey = rkey;
    return post(c, request, buffers.local, bytes);
}

void read_back(Client& c, std::uint32_t bytes) {
    std::memset(buffers.local, 0, kBuffer);
    bool is_equal = rdma(c, IBV_WR_RDMA_READ, bytes, c.peer.rkey) == IBV_WC_SUCCESS;
    is_equal = is_equal && std::memcmp(buffers.local, buffers.remote, bytes) == 0;
    expect(is_equal, "READ brings the server's data");
}

void atomic(Client& c, ibv_wr_opcode opcode, std::uint64_t compare_add, std::uint64_t swap,
            std::uint64_t before, const char* what) {
    ibv_send_wr request{};
    request.opcode = opcode;
    request.wr.atomic.remote_addr = c.peer.address;
    request.wr.atomic.rkey = c.peer.rkey;
    request.wr.atomic.compare_add = compare_add;
    request.wr.atomic.swap = swap;
    const ibv_wc_status status = post(c, request, buffers.local, 8);
    std::uint64_t found = 0;
    std::memcpy(&found, buffers.local, 8);
    expect(status == IBV_WC_SUCCESS && found == before, what);
}

constexpr std::uint32_t kSizes[] = {0, 1, 2, 3, 64, 1024, 1025, kLong};

void probe_send(Client& c) {
    for (const std::uint32_t bytes : kSizes) expect(send(c, IBV_WR_SEND, bytes), {}, "SEND");
    expect(send(c, IBV_WR_SEND, 16, 0, IBV_SEND_SOLICITED), {}, "SEND, solicited");
}

void probe_sendimm(Client& c) {
    expect(send(c, IBV_WR_SEND_WITH_IMM, 0, 0x11223344), {}, "SEND with immediate, empty");
    expect(send(c, IBV_WR_SEND_WITH_IMM, 16, 0x55667788), {}, "SEND with immediate");
    expect(send(c, IBV_WR_SEND_WITH_IMM, kLong, 0x99aabbcc), {}, "SEND with immediate, long");
}

// The server opens two windows and sends their keys.
void probe_sendinv(Client& c) {
    ibv_wc done{};
    if (rdma_get_recv_comp(c.id, &done) < 0 || done.status != IBV_WC_SUCCESS) die("the rkeys");
    std::uint32_t rkey[kWindows];
    std::memcpy(rkey, buffers.receive[0], sizeof rkey);
    for (std::uint32_t& key : rkey) key = be32toh(key);
    expect(rdma(c, IBV_WR_RDMA_WRITE, 64, rkey[0]), {}, "WRITE through a window");
    expect(send(c, IBV_WR_SEND_WITH_INV, 16, rkey[0]), {}, "SEND with invalidate");
    expect(send(c, IBV_WR_SEND_WITH_INV, kLong, rkey[1]), {}, "SEND with invalidate, long");
    expect(rdma(c, IBV_WR_RDMA_WRITE, 64, rkey[0]), IBV_WC_REM_ACCESS_ERR, "WRITE, window closed");
}

void probe_write(Client& c) {
    for (const std::uint32_t bytes : kSizes)
        expect(rdma(c, IBV_WR_RDMA_WRITE, bytes, c.peer.rkey), {}, "WRITE");
}

void probe_writeimm(Client& c) {
    const auto opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    expect(rdma(c, opcode, 0, c.peer.rkey, 0x11223344), {}, "WRITE with immediate, empty");
    expect(rdma(c, opcode, 16, c.peer.rkey, 0x55667788), {}, "WRITE with immediate");
    expect(rdma(c, opcode, kLong, c.peer.rkey, 0x99aabbcc), {}, "WRITE with immediate, long");
}

void probe_read(Client& c) {
    for (const std::uint32_t bytes : kSizes) read_back(c, bytes);
}

void probe_atomic(Client& c) {
    const std::uint64_t start = 1000;
    const std::uint64_t swapped = 0x0102030405060708;
    std::memcpy(buffers.local, &start, 8);
    expect(rdma(c, IBV_WR_RDMA_WRITE, 8, c.peer.rkey), {}, "WRITE of 1000");
    atomic(c, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0, start, "FETCH_ADD of 5 returns 1000");
    atomic(c, IBV_WR_ATOMIC_CMP_AND_SWP, 1005, swapped, 1005, "CMP_SWAP that matches");
    atomic(c, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 2, swapped, "CMP_SWAP that does not match");
    atomic(c, IBV_WR_ATOMIC_FETCH_AND_ADD, UINT64_MAX, 0, swapped, "FETCH_ADD of -1");
}

void probe_rnr(Client& c) {
    expect(send(c, IBV_WR_SEND, 64), {}, "SEND to a receive that is posted late");
}
void probe_rnrfail(Client& c) {
    expect(send(c, IBV_WR_SEND, 64), IBV_WC_RNR_RETRY_EXC_ERR, "SEND without any receive");
}
void probe_badrkey(Client& c) {
    expect(rdma(c, IBV_WR_RDMA_WRITE, 64, c.peer.rkey ^ 0x55), IBV_WC_REM_ACCESS_ERR,
           "WRITE with a bad rkey");
}
void probe_badread(Client& c) {
    expect(rdma(c, IBV_WR_RDMA_READ, 64, c.peer.rkey ^ 0x55), IBV_WC_REM_ACCESS_ERR,
           "READ with a bad rkey");
}
// The server tells by a SEND that its queue pair no longer takes READs.
void probe_noaccess(Client& c) {
    ibv_wc done{};
    if (rdma_get_recv_comp(c.id, &done) < 0 || done.status != IBV_WC_SUCCESS) die("the signal");
    expect(rdma(c, IBV_WR_RDMA_READ, 64, c.peer.rkey), IBV_WC_REM_INV_REQ_ERR,
           "READ from a queue pair that takes none");
}
// The status is the server's to say, and compared between servers.
void probe_toolong(Client& c) {
    const ibv_wc_status status = send(c, IBV_WR_SEND, 128);
    std::printf("SEND longer than the receive: %s\n", ibv_wc_status_str(status));
    expect(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR, "it fails remotely");
}
void probe_badrecv(Client& c) {
    expect(send(c, IBV_WR_SEND, 64), IBV_WC_REM_OP_ERR, "SEND into a receive with a bad lkey");
}
void probe_stream(Client& c) {
    for (int i = 0; i < 5; i++)
        expect(rdma(c, IBV_WR_RDMA_WRITE, kBuffer, c.peer.rkey), {}, "WRITE of 16 KiB");
}
void probe_connect(Client&) {}
// The server disconnects as soon as it has the SEND.
void probe_hangup(Client& c) {
    expect(send(c, IBV_WR_SEND, 64), {}, "SEND");
    expect(next_event(c.id, 30'000) == RDMA_CM_EVENT_DISCONNECTED, "the server disconnects");
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    if (ibv_modify_qp(c.id->qp, &error, IBV_QP_STATE) != 0) die("ibv_modify_qp");
    ibv_wc done{};
    if (rdma_get_recv_comp(c.id, &done) < 0) die("rdma_get_recv_comp");
    expect(done.status, IBV_WC_WR_FLUSH_ERR, "the receive still posted");
}
// Killed by whoever started it.
void probe_killed(Client& c) {
    expect(send(c, IBV_WR_SEND, 64), {}, "SEND");
    std::printf("ready\n");
    std::fflush(stdout);
    ::sleep(60);
    expect(false, "killed in time");
}
// The server is killed by whoever started it.
void probe_orphan(Client& c) {
    expect(send(c, IBV_WR_SEND, 64), {}, "SEND");
    expect(outlive_peer(c.id), "the server's end is noticed");
}

struct Probe {
    std::string_view name;
    void (*run)(Client&);
};
constexpr Probe kProbes[] = {
    {"connect", probe_connect},   {"send", probe_send},       {"sendimm", probe_sendimm},
    {"sendinv", probe_sendinv},   {"write", probe_write},     {"writeimm", probe_writeimm},
    {"read", probe_read},         {"atomic", probe_atomic},   {"rnr", probe_rnr},
    {"rnrfail", probe_rnrfail},   {"badrkey", probe_badrkey}, {"badread", probe_badread},
    {"noaccess", probe_noaccess}, {"toolong", probe_toolong}, {"badrecv", probe_badrecv},
    {"stream", probe_stream},     {"hangup", probe_hangup},   {"killed", probe_killed},
    {"orphan", probe_orphan},
};

void run(Client& c, std::string_view name) {
    for (const Probe& probe : kProbes)
        if (probe.name == name) return probe.run(c);
    expect(false, "the probe is known");
}

}  // namespace

int client(const char* address, const char* port, std::string_view probe) {
    ibv_qp_init_attr wanted = queue_pair(false);
    Client c{};
    if (rdma_create_ep(&c.id, resolve(address, port, false, false), nullptr, &wanted) != 0)
        die("rdma_create_ep");
    c.region = register_memory(c.id, buffers.local, kBuffer, IBV_ACCESS_LOCAL_WRITE);
    ibv_mr* receives =
        register_memory(c.id, buffers.receive, sizeof buffers.receive, IBV_ACCESS_LOCAL_WRITE);
    if (rdma_post_recv(c.id, nullptr, buffers.receive[0], kReceive, receives) != 0)
        die("rdma_post_recv");
    char name[kName] = {};
    probe.copy(name, kName - 1);
    rdma_conn_param parameters{};
    parameters.private_data = name;
    parameters.private_data_len = kName;
    parameters.initiator_depth = parameters.responder_resources = 4;
    parameters.rnr_retry_count = 7;
    // rxe takes 7 for ever; these two wait for the retries to run out.
    parameters.retry_count = probe == "killed" || probe == "orphan" ? 2 : 6;
    const bool is_refused = rdma_connect(c.id, &parameters) != 0;
    if (probe == "reject") {
        expect(is_refused && c.id->event->event == RDMA_CM_EVENT_REJECTED, "the server rejects");
        return failures;
    }
    if (is_refused) die("rdma_connect");
    std::memcpy(&c.peer, c.id->event->param.conn.private_data, sizeof c.peer);
    c.peer.address = be64toh(c.peer.address);
    c.peer.rkey = be32toh(c.peer.rkey);
    run(c, probe);
    // Of these there is nobody left to answer it, and the call would wait for that.
    if (probe != "hangup" && probe != "orphan") rdma_disconnect(c.id);
    return failures;
}

int datagram_client(const char* address, const char* port) {
    ibv_qp_init_attr wanted = queue_pair(true);
    Client c{};
    if (rdma_create_ep(&c.id, resolve(address, port, false, true), nullptr, &wanted) != 0)
        die("rdma_create_ep");
    c.region = register_memory(c.id, buffers.local, kBuffer, IBV_ACCESS_LOCAL_WRITE);
    rdma_conn_param parameters{};
    parameters.private_data = "ud";
    parameters.private_data_len = 3;
    if (rdma_connect(c.id, &parameters) != 0) die("rdma_connect");
    rdma_ud_param& found = c.id->event->param.ud;
    ibv_ah* handle = ibv_create_ah(c.id->pd, &found.ah_attr);
    if (handle == nullptr) die("ibv_create_ah");
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.wr.ud.ah = handle;
    request.wr.ud.remote_qpn = found.qp_num;
    request.wr.ud.remote_qkey = found.qkey;
    expect(post(c, request, buffers.local, 64), {}, "UD SEND");
    expect(post(c, request, buffers.local, 1), {}, "UD SEND, one byte");
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htobe32(0x11223344);
    expect(post(c, request, buffers.local, 1024), {}, "UD SEND with immediate");
    return failures;
}

}  // namespace wireprobe
