#include "sim/cm_peer.hpp"

#include <fcntl.h>

#include <cstring>

#include "base/assert.hpp"
#include "sim/abi_world.hpp"

namespace feroce::sim {
namespace {

constexpr int kResolveMs = 1000;

void make_nonblocking(int fd) {
    ASSERT(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
}

rdma_conn_param parameters() {
    rdma_conn_param p{};
    p.responder_resources = 1;
    p.initiator_depth = 1;
    p.retry_count = 7;
    p.rnr_retry_count = 7;
    return p;
}

}  // namespace

sockaddr_storage socket_address(const Gid& gid, std::uint16_t port) {
    sockaddr_storage out{};
    if (gid.is_v4()) {
        auto& v4 = reinterpret_cast<sockaddr_in&>(out);
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        v4.sin_addr.s_addr = htonl(gid.v4());
    } else {
        auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
        std::memcpy(&v6.sin6_addr, gid.raw.data(), gid.raw.size());
    }
    return out;
}

std::optional<CmNews> next_event(rdma_event_channel* channel) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel, &event) != 0) return std::nullopt;
    const CmNews news{event->event, event->status, event->id};
    rdma_ack_cm_event(event);
    return news;
}

CmPeer::CmPeer() : buffer_(std::size_t{2} * kBytes, &here().memory()) {
    open_channel();
    ASSERT(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) == 0);
}

CmPeer::CmPeer(rdma_cm_id* from) : id_(from), buffer_(std::size_t{2} * kBytes, &here().memory()) {
    open_channel();
    ASSERT(rdma_migrate_id(id_, channel_) == 0);
}

CmPeer::~CmPeer() {
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
    if (cq_ != nullptr) ibv_destroy_cq(cq_);
    if (completions_ != nullptr) ibv_destroy_comp_channel(completions_);
    if (mr_ != nullptr) ibv_dereg_mr(mr_);
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
}

void CmPeer::open_channel() {
    channel_ = rdma_create_event_channel();
    ASSERT(channel_ != nullptr);
    make_nonblocking(channel_->fd);
}

bool CmPeer::make_qp() {
    completions_ = ibv_create_comp_channel(id_->verbs);
    make_nonblocking(completions_->fd);
    cq_ = ibv_create_cq(id_->verbs, 16, nullptr, completions_, 0);
    mr_ = ibv_reg_mr(id_->pd, buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_qp_init_attr wanted{};
    wanted.qp_type = IBV_QPT_RC;
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.cap = {4, 4, 1, 1, 0};
    if (mr_ == nullptr || rdma_create_qp(id_, nullptr, &wanted) != 0) return false;
    ibv_sge sge{reinterpret_cast<std::uint64_t>(incoming()), kBytes, mr_->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(id_->qp, &wr, &bad) == 0;
}

std::optional<CmNews> CmPeer::connect(const Gid& to, std::uint16_t port, Duration patience) {
    sockaddr_storage address = socket_address(to, port);
    ASSERT(rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address), kResolveMs) == 0);
    std::optional<CmNews> news = event(patience);
    if (!news || news->type != RDMA_CM_EVENT_ADDR_RESOLVED) return news;
    ASSERT(rdma_resolve_route(id_, kResolveMs) == 0);
    news = event(patience);
    if (!news || news->type != RDMA_CM_EVENT_ROUTE_RESOLVED) return news;
    ASSERT(make_qp());
    rdma_conn_param p = parameters();
    ASSERT(rdma_connect(id_, &p) == 0);
    return std::nullopt;
}

int CmPeer::accept() {
    rdma_conn_param p = parameters();
    return rdma_accept(id_, &p);
}

std::optional<CmNews> CmPeer::event(Duration patience) {
    Machine& machine = here().machine();
    const Instant end = machine.now() + patience;
    for (;;) {
        if (std::optional<CmNews> news = event_now()) return news;
        if (machine.now() >= end) return std::nullopt;
        wait_for_news(end - machine.now());
    }
}

std::optional<ibv_wc> CmPeer::completion_now() {
    ibv_cq* cq = nullptr;
    void* unused = nullptr;
    while (ibv_get_cq_event(completions_, &cq, &unused) == 0) {
        ibv_ack_cq_events(cq, 1);
        look_ = true;
    }
    if (!look_) return std::nullopt;
    // Armed before the last look, so that what comes later is an event.
    ibv_req_notify_cq(cq_, 0);
    ibv_wc wc{};
    if (ibv_poll_cq(cq_, 1, &wc) == 1) return wc;
    look_ = false;
    return std::nullopt;
}

void CmPeer::send(std::uint32_t bytes) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(outgoing()), bytes, mr_->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT(ibv_post_send(id_->qp, &wr, &bad) == 0);
}

}  // namespace feroce::sim
