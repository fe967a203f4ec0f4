// The private node IBVERBS_PRIVATE_34 as rdma-core 44 to 56 have it (Debian 12 and 13), to which
// Debian's libmlx5, libefa and others bind every symbol when they are loaded, before they look
// whether a device is theirs. Ours never is, so none of these is called but the three that do
// something; the rest say "not supported".
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "verbs/common.hpp"

#define FEROCE_UNSUPPORTED(name)   \
    int name(void) {               \
        return errno = EOPNOTSUPP; \
    }

#pragma GCC visibility push(default)
extern "C" {

bool verbs_allow_disassociate_destroy = false;

// Called by the constructors of provider libraries; we have no use for their drivers.
void verbs_register_driver_34(const void*) {}

int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned int index,
                       unsigned int* type) {
    constexpr unsigned int kRoceV2 = 1;
    if (port != 1 || index >= feroce::verbs::limits::kGidTableLength) {
        errno = EINVAL;
        return -1;
    }
    (void)context;
    *type = kRoceV2;
    return 0;
}

// "This is not an EFA device" and the like: true, and of no interest.
void __verbs_log(void*, std::uint32_t, const char*, ...) {}

void* _verbs_init_and_alloc_context(void) {
    return nullptr;
}
void* verbs_open_device(void) {
    return nullptr;
}
void verbs_set_ops(void) {}
void verbs_uninit_context(void) {}
void verbs_init_cq(void) {}
unsigned int __ioctl_final_num_attrs(unsigned int, const void*) {
    return 0;
}
int ibv_read_ibdev_sysfs_file(void) {
    return -1;
}

FEROCE_UNSUPPORTED(execute_ioctl)
FEROCE_UNSUPPORTED(ibv_cmd_advise_mr)
FEROCE_UNSUPPORTED(ibv_cmd_alloc_dm)
FEROCE_UNSUPPORTED(ibv_cmd_alloc_mw)
FEROCE_UNSUPPORTED(ibv_cmd_alloc_pd)
FEROCE_UNSUPPORTED(ibv_cmd_attach_mcast)
FEROCE_UNSUPPORTED(ibv_cmd_close_xrcd)
FEROCE_UNSUPPORTED(ibv_cmd_create_ah)
FEROCE_UNSUPPORTED(ibv_cmd_create_counters)
FEROCE_UNSUPPORTED(ibv_cmd_create_cq)
FEROCE_UNSUPPORTED(ibv_cmd_create_cq_ex)
FEROCE_UNSUPPORTED(ibv_cmd_create_cq_ex2)
FEROCE_UNSUPPORTED(ibv_cmd_create_flow)
FEROCE_UNSUPPORTED(ibv_cmd_create_flow_action_esp)
FEROCE_UNSUPPORTED(ibv_cmd_create_qp)
FEROCE_UNSUPPORTED(ibv_cmd_create_qp_ex)
FEROCE_UNSUPPORTED(ibv_cmd_create_qp_ex2)
FEROCE_UNSUPPORTED(ibv_cmd_create_rwq_ind_table)
FEROCE_UNSUPPORTED(ibv_cmd_create_srq)
FEROCE_UNSUPPORTED(ibv_cmd_create_srq_ex)
FEROCE_UNSUPPORTED(ibv_cmd_create_wq)
FEROCE_UNSUPPORTED(ibv_cmd_dealloc_mw)
FEROCE_UNSUPPORTED(ibv_cmd_dealloc_pd)
FEROCE_UNSUPPORTED(ibv_cmd_dereg_mr)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_ah)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_counters)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_cq)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_flow)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_flow_action)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_qp)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_rwq_ind_table)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_srq)
FEROCE_UNSUPPORTED(ibv_cmd_destroy_wq)
FEROCE_UNSUPPORTED(ibv_cmd_detach_mcast)
FEROCE_UNSUPPORTED(ibv_cmd_free_dm)
FEROCE_UNSUPPORTED(ibv_cmd_get_context)
FEROCE_UNSUPPORTED(ibv_cmd_modify_cq)
FEROCE_UNSUPPORTED(ibv_cmd_modify_flow_action_esp)
FEROCE_UNSUPPORTED(ibv_cmd_modify_qp)
FEROCE_UNSUPPORTED(ibv_cmd_modify_qp_ex)
FEROCE_UNSUPPORTED(ibv_cmd_modify_srq)
FEROCE_UNSUPPORTED(ibv_cmd_modify_wq)
FEROCE_UNSUPPORTED(ibv_cmd_open_qp)
FEROCE_UNSUPPORTED(ibv_cmd_open_xrcd)
FEROCE_UNSUPPORTED(ibv_cmd_poll_cq)
FEROCE_UNSUPPORTED(ibv_cmd_post_recv)
FEROCE_UNSUPPORTED(ibv_cmd_post_send)
FEROCE_UNSUPPORTED(ibv_cmd_post_srq_recv)
FEROCE_UNSUPPORTED(ibv_cmd_query_context)
FEROCE_UNSUPPORTED(ibv_cmd_query_device_any)
FEROCE_UNSUPPORTED(ibv_cmd_query_mr)
FEROCE_UNSUPPORTED(ibv_cmd_query_port)
FEROCE_UNSUPPORTED(ibv_cmd_query_qp)
FEROCE_UNSUPPORTED(ibv_cmd_query_srq)
FEROCE_UNSUPPORTED(ibv_cmd_read_counters)
FEROCE_UNSUPPORTED(ibv_cmd_reg_dm_mr)
FEROCE_UNSUPPORTED(ibv_cmd_reg_dmabuf_mr)
FEROCE_UNSUPPORTED(ibv_cmd_reg_mr)
FEROCE_UNSUPPORTED(ibv_cmd_req_notify_cq)
FEROCE_UNSUPPORTED(ibv_cmd_rereg_mr)
FEROCE_UNSUPPORTED(ibv_cmd_resize_cq)

}  // extern "C"
#pragma GCC visibility pop
