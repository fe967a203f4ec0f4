// RC queue pairs between two processes, on the public verbs alone, so that the same program
// measures any device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "measure.hpp"

namespace feroce::bench {

constexpr std::uint32_t kDepth = 256;
constexpr int kReceives = 200;
constexpr std::uint32_t kInlineMax = 64;

struct QpAddress {
    std::uint32_t qpn;
    std::uint32_t psn;
    ibv_gid gid;
    std::uint64_t buffer;
    std::uint32_t rkey;
};

class Device {
public:
    Device() {
        int count = 0;
        ibv_device** list = ibv_get_device_list(&count);
        require(list != nullptr && count > 0, "no RDMA device");
        context_ = ibv_open_device(list[0]);
        require(context_ != nullptr, "ibv_open_device");
        ibv_free_device_list(list);
        pd_ = ibv_alloc_pd(context_);
        require(pd_ != nullptr, "ibv_alloc_pd");
        find_gid();
    }
    ~Device() {
        ibv_dealloc_pd(pd_);
        ibv_close_device(context_);
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    ibv_context* context() const { return context_; }
    ibv_pd* pd() const { return pd_; }
    ibv_gid gid() const { return gid_; }
    std::uint8_t gid_index() const { return gid_index_; }

private:
    void find_gid() {
        for (std::uint32_t i = 0; i < 16; ++i) {
            ibv_gid_entry entry{};
            if (ibv_query_gid_ex(context_, 1, i, &entry, 0) != 0) continue;
            if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || entry.gid.raw[10] != 0xff) continue;
            gid_ = entry.gid;
            gid_index_ = static_cast<std::uint8_t>(i);
            return;
        }
        fail("no RoCEv2 GID with an IPv4 address");
    }

    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_gid gid_{};
    std::uint8_t gid_index_ = 0;
};

// A queue pair with a CQ and a buffer of its own.
class Endpoint {
public:
    Endpoint(const Device& device, std::size_t size) : device_(device), buffer_(size, 'x') {
        cq_ = ibv_create_cq(device.context(), 2 * kDepth, nullptr, nullptr, 0);
        mr_ = ibv_reg_mr(device.pd(), buffer_.data(), size,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC);
        require(cq_ != nullptr && mr_ != nullptr, "ibv_create_cq or ibv_reg_mr");
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = cq_;
        wanted.qp_type = IBV_QPT_RC;
        wanted.cap = {kDepth, kDepth, 1, 1, kInlineMax};
        qp_ = ibv_create_qp(device.pd(), &wanted);
        require(qp_ != nullptr, "ibv_create_qp");
    }
    ~Endpoint() {
        ibv_destroy_qp(qp_);
        ibv_dereg_mr(mr_);
        ibv_destroy_cq(cq_);
    }
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    // Both ends call it, in the same order.
    void join(Channel channel) {
        channel.send(QpAddress{qp_->qp_num, qp_->qp_num & 0xfff, device_.gid(),
                               reinterpret_cast<std::uint64_t>(buffer_.data()), mr_->rkey});
        peer_ = channel.receive<QpAddress>();
        to_init();
        post_receives(kReceives);
        to_rtr();
        to_rts();
        // A packet must not reach a queue pair that cannot receive yet.
        channel.send(true);
        channel.receive<bool>();
    }

    ibv_send_wr request(ibv_wr_opcode opcode, std::uint32_t size, unsigned flags, ibv_sge& sge) {
        sge = {reinterpret_cast<std::uint64_t>(buffer_.data()), size, mr_->lkey};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.send_flags = flags;
        wr.wr.rdma.remote_addr = peer_.buffer;
        wr.wr.rdma.rkey = peer_.rkey;
        return wr;
    }
    void post(ibv_send_wr& first) {
        ibv_send_wr* bad = nullptr;
        require(ibv_post_send(qp_, &first, &bad) == 0, "ibv_post_send");
    }
    void post_receives(int count) {
        ibv_sge sge{reinterpret_cast<std::uint64_t>(buffer_.data()), 64, mr_->lkey};
        ibv_recv_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        for (int i = 0; i < count; ++i)
            require(ibv_post_recv(qp_, &wr, &bad) == 0, "ibv_post_recv");
    }
    int poll() {
        ibv_wc done[16];
        const int count = ibv_poll_cq(cq_, 16, done);
        for (int i = 0; i < count; ++i)
            if (done[i].status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(done[i].status));
        return count;
    }

private:
    void modify(ibv_qp_attr& attributes, int mask) {
        require(ibv_modify_qp(qp_, &attributes, mask) == 0, "ibv_modify_qp");
    }
    void to_init() {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        modify(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    }
    void to_rtr() {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = IBV_MTU_4096;
        a.dest_qp_num = peer_.qpn;
        a.rq_psn = peer_.psn;
        a.max_dest_rd_atomic = 16;
        a.min_rnr_timer = 12;
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        a.ah_attr.grh.dgid = peer_.gid;
        a.ah_attr.grh.sgid_index = device_.gid_index();
        a.ah_attr.grh.hop_limit = 1;
        modify(a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    }
    void to_rts() {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        a.sq_psn = qp_->qp_num & 0xfff;
        a.timeout = 17;
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 16;
        modify(a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    }

    const Device& device_;
    std::vector<char> buffer_;
    ibv_cq* cq_ = nullptr;
    ibv_mr* mr_ = nullptr;
    ibv_qp* qp_ = nullptr;
    QpAddress peer_{};
};

}  // namespace feroce::bench
