// The rows of libibverbs.
#include <fcntl.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <cstdlib>
#include <span>

#include "calls.hpp"

extern "C" {
void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from);
const char* ibv_get_sysfs_path(void);
int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed);
int ibv_read_sysfs_file(const char* directory, const char* file, char* out, std::size_t size);
int ibv_dontfork_range(void* base, std::size_t size);
int ibv_dofork_range(void* base, std::size_t size);
}

namespace feroce::calls {
namespace {

template <class T>
void free_if(T* object, int (*release)(T*)) {
    if (object != nullptr) release(object);
}

ibv_srq* make_srq() {
    ibv_srq_init_attr init{nullptr, {16, 1, 0}};
    return ibv_create_srq(w.pd, &init);
}

// As a receive of a datagram leaves it.
struct FromDatagram {
    ibv_wc wc{};
    ibv_grh grh{};
    FromDatagram() {
        wc.wc_flags = IBV_WC_GRH;
        auto* header = reinterpret_cast<unsigned char*>(&grh) + 20;
        const unsigned char bytes[20] = {0x45, 0, 0,   0, 0, 0, 0,   0, 64, 17,
                                         0,    0, 127, 0, 0, 1, 127, 0, 0,  1};
        for (int i = 0; i < 20; ++i) header[i] = bytes[i];
    }
};

ibv_xrcd* open_xrcd() {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    return ibv_open_xrcd(w.context, &attr);
}

ibv_dm* alloc_dm() {
    ibv_alloc_dm_attr attr{};
    attr.length = 4096;
    return ibv_alloc_dm(w.context, &attr);
}

constexpr Row kDeviceRows[] = {
    {"ibv_get_device_list",
     [](Run& r) {
         r.go();
         if (auto* list = (ibv_get_device_list)(nullptr)) ibv_free_device_list(list);
     }},
    {"ibv_free_device_list",
     [](Run& r) {
         auto* list = (ibv_get_device_list)(nullptr);
         r.go();
         if (list != nullptr) ibv_free_device_list(list);
     }},
    {"ibv_get_device_name",
     [](Run& r) {
         r.go();
         ibv_get_device_name(w.devices[0]);
     }},
    {"ibv_get_device_guid",
     [](Run& r) {
         r.go();
         ibv_get_device_guid(w.devices[0]);
     }},
    {"ibv_get_device_index",
     [](Run& r) {
         r.go();
         ibv_get_device_index(w.devices[0]);
     }},
    {"ibv_open_device",
     [](Run& r) {
         r.go();
         free_if(ibv_open_device(w.devices[0]), ibv_close_device);
     }},
    {"ibv_close_device",
     [](Run& r) {
         auto* c = ibv_open_device(w.devices[0]);
         r.go();
         free_if(c, ibv_close_device);
     }},
    {"ibv_import_device",
     [](Run& r) {
         r.go();
         free_if(ibv_import_device(::dup(w.context->cmd_fd)), ibv_close_device);
     }},
    {"ibv_query_device",
     [](Run& r) {
         ibv_device_attr a;
         r.go();
         ibv_query_device(w.context, &a);
     }},
    {"ibv_query_port",
     [](Run& r) {
         ibv_port_attr a;
         r.go();
         ::ibv_query_port(w.context, 1, &a);
         (ibv_query_port)(w.context, 1, reinterpret_cast<_compat_ibv_port_attr*>(&a));
     }},
    {"ibv_query_gid",
     [](Run& r) {
         ibv_gid g;
         r.go();
         ibv_query_gid(w.context, 1, 0, &g);
     }},
    {"_ibv_query_gid_ex",
     [](Run& r) {
         ibv_gid_entry e;
         r.go();
         ibv_query_gid_ex(w.context, 1, 0, &e, 0);
     }},
    {"_ibv_query_gid_table",
     [](Run& r) {
         ibv_gid_entry e[64];
         r.go();
         ibv_query_gid_table(w.context, e, 64, 0);
     }},
    {"ibv_query_pkey",
     [](Run& r) {
         __be16 k;
         r.go();
         ibv_query_pkey(w.context, 1, 0, &k);
     }},
    {"ibv_get_pkey_index",
     [](Run& r) {
         r.go();
         ibv_get_pkey_index(w.context, 1, 0xffff);
     }},
    {"ibv_get_sysfs_path",
     [](Run& r) {
         r.go();
         ibv_get_sysfs_path();
     }},
    {"ibv_read_sysfs_file",
     [](Run& r) {
         char c[64];
         r.go();
         ibv_read_sysfs_file("/proc/sys/kernel", "ostype", c, sizeof c);
     }},
    {"ibv_fork_init",
     [](Run& r) {
         r.go();
         ibv_fork_init();
     }},
    {"ibv_is_fork_initialized",
     [](Run& r) {
         r.go();
         ibv_is_fork_initialized();
     }},
    {"ibv_dontfork_range",
     [](Run& r) {
         r.go();
         ibv_dontfork_range(w.buffer.data(), 64);
     }},
    {"ibv_dofork_range",
     [](Run& r) {
         r.go();
         ibv_dofork_range(w.buffer.data(), 64);
     }},
};

constexpr Row kMemoryRows[] = {
    {"ibv_alloc_pd",
     [](Run& r) {
         r.go();
         free_if(ibv_alloc_pd(w.context), ibv_dealloc_pd);
     }},
    {"ibv_dealloc_pd",
     [](Run& r) {
         auto* pd = ibv_alloc_pd(w.context);
         r.go();
         free_if(pd, ibv_dealloc_pd);
     }},
    {"ibv_import_pd",
     [](Run& r) {
         r.go();
         if (auto* pd = ibv_import_pd(w.context, w.pd->handle)) ibv_unimport_pd(pd);
     }},
    {"ibv_unimport_pd",
     [](Run& r) {
         auto* pd = ibv_import_pd(w.context, w.pd->handle);
         r.go();
         if (pd != nullptr) ibv_unimport_pd(pd);
     }},
    {"ibv_reg_mr",
     [](Run& r) {
         r.go();
         free_if((ibv_reg_mr)(w.pd, w.buffer.data(), 64, 0), ibv_dereg_mr);
     }},
    {"ibv_reg_mr_iova",
     [](Run& r) {
         r.go();
         free_if((ibv_reg_mr_iova)(w.pd, w.buffer.data(), 64, 0, 0), ibv_dereg_mr);
     }},
    {"ibv_reg_mr_iova2",
     [](Run& r) {
         r.go();
         free_if(ibv_reg_mr_iova2(w.pd, w.buffer.data(), 64, 0, 0), ibv_dereg_mr);
     }},
    {"ibv_reg_dmabuf_mr",
     [](Run& r) {
         r.go();
         free_if(ibv_reg_dmabuf_mr(w.pd, 0, 64, 0, -1, 0), ibv_dereg_mr);
     }},
    {"ibv_rereg_mr",
     [](Run& r) {
         auto* mr = (ibv_reg_mr)(w.pd, w.buffer.data(), 64, 0);
         r.go();
         if (mr != nullptr)
             ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                          IBV_ACCESS_LOCAL_WRITE);
         free_if(mr, ibv_dereg_mr);
     }},
    {"ibv_dereg_mr",
     [](Run& r) {
         auto* mr = (ibv_reg_mr)(w.pd, w.buffer.data(), 64, 0);
         r.go();
         free_if(mr, ibv_dereg_mr);
     }},
    {"ibv_import_mr",
     [](Run& r) {
         r.go();
         if (auto* mr = ibv_import_mr(w.pd, w.mr->handle)) ibv_unimport_mr(mr);
     }},
    {"ibv_unimport_mr",
     [](Run& r) {
         auto* mr = ibv_import_mr(w.pd, w.mr->handle);
         r.go();
         if (mr != nullptr) ibv_unimport_mr(mr);
     }},
    {"ibv_import_dm",
     [](Run& r) {
         auto* dm = alloc_dm();
         r.go();
         if (dm != nullptr)
             if (auto* same = ibv_import_dm(w.context, dm->handle)) ibv_unimport_dm(same);
         free_if(dm, ibv_free_dm);
     }},
    {"ibv_unimport_dm",
     [](Run& r) {
         auto* dm = alloc_dm();
         auto* same = dm == nullptr ? nullptr : ibv_import_dm(w.context, dm->handle);
         r.go();
         if (same != nullptr) ibv_unimport_dm(same);
         free_if(dm, ibv_free_dm);
     }},
    {"ibv_create_ah",
     [](Run& r) {
         auto a = w.address();
         r.go();
         free_if(ibv_create_ah(w.pd, &a), ibv_destroy_ah);
     }},
    {"ibv_destroy_ah",
     [](Run& r) {
         auto a = w.address();
         auto* ah = ibv_create_ah(w.pd, &a);
         r.go();
         free_if(ah, ibv_destroy_ah);
     }},
    {"ibv_create_ah_from_wc",
     [](Run& r) {
         FromDatagram d;
         r.go();
         free_if(ibv_create_ah_from_wc(w.pd, &d.wc, &d.grh, 1), ibv_destroy_ah);
     }},
    {"ibv_init_ah_from_wc",
     [](Run& r) {
         FromDatagram d;
         ibv_ah_attr a;
         r.go();
         ibv_init_ah_from_wc(w.context, 1, &d.wc, &d.grh, &a);
     }},
    {"ibv_resolve_eth_l2_from_gid",
     [](Run& r) {
         auto a = w.address();
         std::uint8_t mac[6];
         std::uint16_t vid;
         r.go();
         ibv_resolve_eth_l2_from_gid(w.context, &a, mac, &vid);
     }},
};

constexpr Row kQueueRows[] = {
    {"ibv_create_comp_channel",
     [](Run& r) {
         r.go();
         free_if(ibv_create_comp_channel(w.context), ibv_destroy_comp_channel);
     }},
    {"ibv_destroy_comp_channel",
     [](Run& r) {
         auto* c = ibv_create_comp_channel(w.context);
         r.go();
         free_if(c, ibv_destroy_comp_channel);
     }},
    {"ibv_create_cq",
     [](Run& r) {
         r.go();
         free_if(ibv_create_cq(w.context, 256, nullptr, w.channel, 0), ibv_destroy_cq);
     }},
    {"ibv_resize_cq",
     [](Run& r) {
         auto* cq = ibv_create_cq(w.context, 16, nullptr, nullptr, 0);
         r.go();
         if (cq != nullptr) ibv_resize_cq(cq, 512);
         free_if(cq, ibv_destroy_cq);
     }},
    {"ibv_destroy_cq",
     [](Run& r) {
         auto* cq = ibv_create_cq(w.context, 16, nullptr, w.channel, 0);
         r.go();
         free_if(cq, ibv_destroy_cq);
     }},
    {"ibv_ack_cq_events",
     [](Run& r) {
         r.go();
         ibv_ack_cq_events(w.cq, 0);
     }},
    {"ibv_ack_async_event",
     [](Run& r) {
         ibv_async_event e{};
         e.event_type = IBV_EVENT_PORT_ACTIVE;
         r.go();
         ibv_ack_async_event(&e);
     }},
    {"ibv_create_srq",
     [](Run& r) {
         r.go();
         free_if(make_srq(), ibv_destroy_srq);
     }},
    {"ibv_modify_srq",
     [](Run& r) {
         auto* s = make_srq();
         ibv_srq_attr a{0, 0, 4};
         r.go();
         if (s != nullptr) ibv_modify_srq(s, &a, IBV_SRQ_LIMIT);
         free_if(s, ibv_destroy_srq);
     }},
    {"ibv_query_srq",
     [](Run& r) {
         auto* s = make_srq();
         ibv_srq_attr a{};
         r.go();
         if (s != nullptr) ibv_query_srq(s, &a);
         free_if(s, ibv_destroy_srq);
     }},
    {"ibv_destroy_srq",
     [](Run& r) {
         auto* s = make_srq();
         r.go();
         free_if(s, ibv_destroy_srq);
     }},
    {"ibv_create_qp",
     [](Run& r) {
         r.go();
         free_if(w.make_qp(), ibv_destroy_qp);
     }},
    {"ibv_destroy_qp",
     [](Run& r) {
         auto* qp = w.make_qp();
         r.go();
         free_if(qp, ibv_destroy_qp);
     }},
    {"ibv_modify_qp",
     [](Run& r) {
         auto* qp = w.make_qp();
         ibv_qp_attr a{};
         a.qp_state = IBV_QPS_INIT;
         a.port_num = 1;
         r.go();
         if (qp != nullptr)
             ibv_modify_qp(qp, &a,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
         free_if(qp, ibv_destroy_qp);
     }},
    {"ibv_query_qp",
     [](Run& r) {
         ibv_qp_attr a;
         ibv_qp_init_attr i;
         r.go();
         ibv_query_qp(w.qp, &a, IBV_QP_STATE, &i);
     }},
    {"ibv_query_port_speed",
     [](Run& r) {
         std::uint64_t speed = 0;
         r.go();
         ibv_query_port_speed(w.context, 1, &speed);
     }},
    {"ibv_query_qp_data_in_order",
     [](Run& r) {
         r.go();
         ibv_query_qp_data_in_order(w.qp, IBV_WR_RDMA_WRITE, 0);
     }},
    {"ibv_qp_to_qp_ex",
     [](Run& r) {
         r.go();
         ibv_qp_to_qp_ex(w.qp);
     }},
    {"ibv_set_ece",
     [](Run& r) {
         ibv_ece e{};
         r.go();
         ibv_set_ece(w.qp, &e);
     }},
    {"ibv_query_ece",
     [](Run& r) {
         ibv_ece e{};
         r.go();
         ibv_query_ece(w.qp, &e);
     }},
};

struct Datagrams {
    ibv_qp* qp;
    ibv_gid group{};
    Datagrams() {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = w.cq;
        init.qp_type = IBV_QPT_UD;
        init.cap = {4, 4, 1, 1, 0};
        qp = ibv_create_qp(w.pd, &init);
        group.raw[10] = group.raw[11] = 0xff;
        group.raw[12] = 239;
        group.raw[15] = 77;
    }
    void end() { free_if(qp, ibv_destroy_qp); }
};

constexpr Row kOtherRows[] = {
    {"ibv_attach_mcast",
     [](Run& r) {
         Datagrams d;
         r.go();
         if (d.qp != nullptr) ibv_attach_mcast(d.qp, &d.group, 0);
         d.end();
     }},
    {"ibv_detach_mcast",
     [](Run& r) {
         Datagrams d;
         if (d.qp != nullptr) ibv_attach_mcast(d.qp, &d.group, 0);
         r.go();
         if (d.qp != nullptr) ibv_detach_mcast(d.qp, &d.group, 0);
         d.end();
     }},
    {"ibv_wc_status_str",
     [](Run& r) {
         r.go();
         ibv_wc_status_str(IBV_WC_SUCCESS);
     }},
    {"ibv_event_type_str",
     [](Run& r) {
         r.go();
         ibv_event_type_str(IBV_EVENT_CQ_ERR);
     }},
    {"ibv_node_type_str",
     [](Run& r) {
         r.go();
         ibv_node_type_str(IBV_NODE_CA);
     }},
    {"ibv_port_state_str",
     [](Run& r) {
         r.go();
         ibv_port_state_str(IBV_PORT_ACTIVE);
     }},
    {"ibv_rate_to_mult",
     [](Run& r) {
         r.go();
         (void)ibv_rate_to_mult(IBV_RATE_10_GBPS);
     }},
    {"mult_to_ibv_rate",
     [](Run& r) {
         r.go();
         (void)mult_to_ibv_rate(4);
     }},
    {"ibv_rate_to_mbps",
     [](Run& r) {
         r.go();
         (void)ibv_rate_to_mbps(IBV_RATE_10_GBPS);
     }},
    {"mbps_to_ibv_rate",
     [](Run& r) {
         r.go();
         (void)mbps_to_ibv_rate(10000);
     }},
    {"ibv_copy_ah_attr_from_kern",
     [](Run& r) {
         ibv_ah_attr a;
         ib_uverbs_ah_attr k{};
         r.go();
         ibv_copy_ah_attr_from_kern(&a, &k);
     }},
    {"ibv_copy_qp_attr_from_kern",
     [](Run& r) {
         ibv_qp_attr a;
         ib_uverbs_qp_attr k{};
         r.go();
         ibv_copy_qp_attr_from_kern(&a, &k);
     }},
    {"ibv_copy_path_rec_from_kern",
     [](Run& r) {
         ibv_sa_path_rec a;
         ib_user_path_rec k{};
         r.go();
         ibv_copy_path_rec_from_kern(&a, &k);
     }},
    {"ibv_copy_path_rec_to_kern",
     [](Run& r) {
         ibv_sa_path_rec a{};
         ib_user_path_rec k;
         r.go();
         ibv_copy_path_rec_to_kern(&k, &a);
     }},
};

ibv_qp_ex* make_builder() {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = w.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 64};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = w.pd;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    ibv_qp* qp = ibv_create_qp_ex(w.context, &init);
    return qp == nullptr ? nullptr : ibv_qp_to_qp_ex(qp);
}

constexpr Row kTableRows[] = {
    {"ibv_post_send",
     [](Run& r) {
         w.post_receive();
         r.go();
         w.post_send();
     }},
    {"ibv_post_recv",
     [](Run& r) {
         r.go();
         w.post_receive();
         w.post_send();
     }},
    {"ibv_post_srq_recv",
     [](Run& r) {
         auto* s = make_srq();
         ibv_recv_wr wr{};
         ibv_recv_wr* bad;
         r.go();
         if (s != nullptr) ibv_post_srq_recv(s, &wr, &bad);
         free_if(s, ibv_destroy_srq);
     }},
    {"ibv_poll_cq",
     [](Run& r) {
         w.post_receive();
         w.post_send();
         ibv_wc wc;
         r.go();
         for (int i = 0; i < 10000; ++i) ibv_poll_cq(w.cq, 1, &wc);
     }},
    {"ibv_req_notify_cq",
     [](Run& r) {
         r.go();
         ibv_req_notify_cq(w.cq, 0);
     }},
    {"ibv_create_cq_ex",
     [](Run& r) {
         ibv_cq_init_attr_ex init{};
         init.cqe = 16;
         r.go();
         ibv_cq_ex* cq = ibv_create_cq_ex(w.context, &init);
         if (cq == nullptr) return;
         ibv_poll_cq_attr attr{};
         if (ibv_start_poll(cq, &attr) == 0) ibv_end_poll(cq);
         ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
     }},
    {"ibv_create_qp_ex",
     [](Run& r) {
         r.go();
         ibv_qp_ex* qp = make_builder();
         if (qp == nullptr) return;
         ibv_wr_start(qp);
         ibv_wr_send(qp);
         ibv_wr_set_sge(qp, w.mr->lkey, reinterpret_cast<std::uintptr_t>(w.buffer.data()), 8);
         ibv_wr_complete(qp);
         ibv_wr_start(qp);
         ibv_wr_abort(qp);
         ibv_destroy_qp(&qp->qp_base);
     }},
    {"ibv_alloc_mw",
     [](Run& r) {
         r.go();
         free_if(ibv_alloc_mw(w.pd, IBV_MW_TYPE_1), ibv_dealloc_mw);
     }},
    {"ibv_bind_mw",
     [](Run& r) {
         auto* mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_1);
         ibv_mw_bind bind{};
         bind.bind_info = {w.mr, reinterpret_cast<std::uintptr_t>(w.buffer.data()), 64,
                           IBV_ACCESS_REMOTE_READ};
         r.go();
         if (mw != nullptr) ibv_bind_mw(w.qp, mw, &bind);
         free_if(mw, ibv_dealloc_mw);
     }},
    {"ibv_alloc_null_mr",
     [](Run& r) {
         r.go();
         free_if(ibv_alloc_null_mr(w.pd), ibv_dereg_mr);
     }},
    {"ibv_advise_mr",
     [](Run& r) {
         ibv_sge s{reinterpret_cast<std::uintptr_t>(w.buffer.data()), 64, w.mr->lkey};
         r.go();
         ibv_advise_mr(w.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &s, 1);
     }},
    {"ibv_alloc_dm",
     [](Run& r) {
         r.go();
         free_if(alloc_dm(), ibv_free_dm);
     }},
    {"ibv_reg_dm_mr",
     [](Run& r) {
         auto* dm = alloc_dm();
         r.go();
         if (dm != nullptr)
             free_if(ibv_reg_dm_mr(w.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED), ibv_dereg_mr);
         free_if(dm, ibv_free_dm);
     }},
    {"ibv_open_xrcd",
     [](Run& r) {
         r.go();
         free_if(open_xrcd(), ibv_close_xrcd);
     }},
    {"ibv_alloc_td",
     [](Run& r) {
         ibv_td_init_attr a{};
         r.go();
         free_if(ibv_alloc_td(w.context, &a), ibv_dealloc_td);
     }},
    {"ibv_alloc_parent_domain",
     [](Run& r) {
         ibv_parent_domain_init_attr a{};
         a.pd = w.pd;
         r.go();
         free_if(ibv_alloc_parent_domain(w.context, &a), ibv_dealloc_pd);
     }},
    {"ibv_query_device_ex",
     [](Run& r) {
         ibv_device_attr_ex a;
         r.go();
         ibv_query_device_ex(w.context, nullptr, &a);
     }},
    {"ibv_query_rt_values_ex",
     [](Run& r) {
         ibv_values_ex v{};
         v.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
         r.go();
         ibv_query_rt_values_ex(w.context, &v);
     }},
};

}  // namespace

std::vector<Row> verbs_rows() {
    std::vector<Row> all;
    for (const auto& rows : {std::span<const Row>(kDeviceRows), std::span<const Row>(kMemoryRows),
                             std::span<const Row>(kQueueRows), std::span<const Row>(kOtherRows)})
        all.insert(all.end(), rows.begin(), rows.end());
    return all;
}

std::vector<Row> verbs_table_rows() {
    return {std::begin(kTableRows), std::end(kTableRows)};
}

}  // namespace feroce::calls
