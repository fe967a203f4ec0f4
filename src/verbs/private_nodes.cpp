// The private nodes of rdma-core 28 and 33 (Ubuntu 20.04, Debian 11) and of 57 to 65, to which its
// providers and ibv_devinfo bind as to that of private_stubs.cpp. Each has the names of the one
// before it and some more. A name can stand in one node of a version script, so these come by
// .symver, which no whole-program optimization may see: this file is no part of a room.
#include <cerrno>
#include <cstdint>

#include "verbs/abi.hpp"

extern "C" int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned int index,
                                  unsigned int* type);

// The function feroce_NODE_NAME is NAME at the node.
#define FEROCE_AT(NODE, name) \
    asm(".symver feroce_" #NODE "_" #name ", " #name "@IBVERBS_PRIVATE_" #NODE);
#define FEROCE_ABSENT(NODE, name)      \
    int feroce_##NODE##_##name(void) { \
        return errno = EOPNOTSUPP;     \
    }                                  \
    FEROCE_AT(NODE, name)

// The same for a call that returns a pointer, of which a number would be a bad one.
using Pointer = void*;
#define FEROCE_ABSENT_POINTER(NODE, name)  \
    Pointer feroce_##NODE##_##name(void) { \
        errno = EOPNOTSUPP;                \
        return nullptr;                    \
    }                                      \
    FEROCE_AT(NODE, name)

// What providers and programs really call before they know whose device it is. The rest of the
// pointers say "there is none".
#define FEROCE_PRESENT(NODE)                                                          \
    void verbs_register_driver_##NODE(const void*) {}                                 \
    bool feroce_##NODE##_verbs_allow_disassociate_destroy = false;                    \
    FEROCE_AT(NODE, verbs_allow_disassociate_destroy)                                 \
    void feroce_##NODE##___verbs_log(void*, std::uint32_t, const char*, ...) {}       \
    FEROCE_AT(NODE, __verbs_log)                                                      \
    int feroce_##NODE##_ibv_query_gid_type(ibv_context* context, std::uint8_t port,   \
                                           unsigned int index, unsigned int* type) {  \
        return ibv_query_gid_type(context, port, index, type);                        \
    }                                                                                 \
    FEROCE_AT(NODE, ibv_query_gid_type)                                               \
    const char* feroce_##NODE##_ibv_wr_opcode_str(ibv_wr_opcode opcode) {             \
        return ibv_wr_opcode_str(opcode);                                             \
    }                                                                                 \
    FEROCE_AT(NODE, ibv_wr_opcode_str)                                                \
    int feroce_##NODE##_ibv_read_ibdev_sysfs_file(void) {                             \
        return -1;                                                                    \
    }                                                                                 \
    FEROCE_AT(NODE, ibv_read_ibdev_sysfs_file)                                        \
    unsigned int feroce_##NODE##___ioctl_final_num_attrs(unsigned int, const void*) { \
        return 0;                                                                     \
    }                                                                                 \
    FEROCE_AT(NODE, __ioctl_final_num_attrs)                                          \
    void* feroce_##NODE##__verbs_init_and_alloc_context(void) {                       \
        return nullptr;                                                               \
    }                                                                                 \
    FEROCE_AT(NODE, _verbs_init_and_alloc_context)                                    \
    void* feroce_##NODE##_verbs_open_device(void) {                                   \
        return nullptr;                                                               \
    }                                                                                 \
    FEROCE_AT(NODE, verbs_open_device)

#define FEROCE_SINCE_57(NODE)                           \
    FEROCE_ABSENT(NODE, execute_ioctl)                  \
    FEROCE_ABSENT(NODE, ibv_cmd_advise_mr)              \
    FEROCE_ABSENT(NODE, ibv_cmd_alloc_dm)               \
    FEROCE_ABSENT(NODE, ibv_cmd_alloc_mw)               \
    FEROCE_ABSENT(NODE, ibv_cmd_alloc_pd)               \
    FEROCE_ABSENT(NODE, ibv_cmd_attach_mcast)           \
    FEROCE_ABSENT(NODE, ibv_cmd_close_xrcd)             \
    FEROCE_ABSENT(NODE, ibv_cmd_create_ah)              \
    FEROCE_ABSENT(NODE, ibv_cmd_create_counters)        \
    FEROCE_ABSENT(NODE, ibv_cmd_create_cq)              \
    FEROCE_ABSENT(NODE, ibv_cmd_create_cq_ex)           \
    FEROCE_ABSENT(NODE, ibv_cmd_create_cq_ex2)          \
    FEROCE_ABSENT(NODE, ibv_cmd_create_flow)            \
    FEROCE_ABSENT(NODE, ibv_cmd_create_flow_action_esp) \
    FEROCE_ABSENT(NODE, ibv_cmd_create_qp)              \
    FEROCE_ABSENT(NODE, ibv_cmd_create_qp_ex)           \
    FEROCE_ABSENT(NODE, ibv_cmd_create_qp_ex2)          \
    FEROCE_ABSENT(NODE, ibv_cmd_create_rwq_ind_table)   \
    FEROCE_ABSENT(NODE, ibv_cmd_create_srq)             \
    FEROCE_ABSENT(NODE, ibv_cmd_create_srq_ex)          \
    FEROCE_ABSENT(NODE, ibv_cmd_create_wq)              \
    FEROCE_ABSENT(NODE, ibv_cmd_dealloc_mw)             \
    FEROCE_ABSENT(NODE, ibv_cmd_dealloc_pd)             \
    FEROCE_ABSENT(NODE, ibv_cmd_dereg_mr)               \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_ah)             \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_counters)       \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_cq)             \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_flow)           \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_flow_action)    \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_qp)             \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_rwq_ind_table)  \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_srq)            \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_wq)             \
    FEROCE_ABSENT(NODE, ibv_cmd_detach_mcast)           \
    FEROCE_ABSENT(NODE, ibv_cmd_free_dm)                \
    FEROCE_ABSENT(NODE, ibv_cmd_get_context)            \
    FEROCE_ABSENT(NODE, ibv_cmd_modify_cq)              \
    FEROCE_ABSENT(NODE, ibv_cmd_modify_flow_action_esp) \
    FEROCE_ABSENT(NODE, ibv_cmd_modify_qp)              \
    FEROCE_ABSENT(NODE, ibv_cmd_modify_qp_ex)           \
    FEROCE_ABSENT(NODE, ibv_cmd_modify_srq)             \
    FEROCE_ABSENT(NODE, ibv_cmd_modify_wq)              \
    FEROCE_ABSENT(NODE, ibv_cmd_open_qp)                \
    FEROCE_ABSENT(NODE, ibv_cmd_open_xrcd)              \
    FEROCE_ABSENT(NODE, ibv_cmd_poll_cq)                \
    FEROCE_ABSENT(NODE, ibv_cmd_post_recv)              \
    FEROCE_ABSENT(NODE, ibv_cmd_post_send)              \
    FEROCE_ABSENT(NODE, ibv_cmd_post_srq_recv)          \
    FEROCE_ABSENT(NODE, ibv_cmd_query_context)          \
    FEROCE_ABSENT(NODE, ibv_cmd_query_device_any)       \
    FEROCE_ABSENT(NODE, ibv_cmd_query_mr)               \
    FEROCE_ABSENT(NODE, ibv_cmd_query_port)             \
    FEROCE_ABSENT(NODE, ibv_cmd_query_qp)               \
    FEROCE_ABSENT(NODE, ibv_cmd_query_srq)              \
    FEROCE_ABSENT(NODE, ibv_cmd_read_counters)          \
    FEROCE_ABSENT(NODE, ibv_cmd_reg_dm_mr)              \
    FEROCE_ABSENT(NODE, ibv_cmd_reg_dmabuf_mr)          \
    FEROCE_ABSENT(NODE, ibv_cmd_reg_mr)                 \
    FEROCE_ABSENT(NODE, ibv_cmd_req_notify_cq)          \
    FEROCE_ABSENT(NODE, ibv_cmd_rereg_mr)               \
    FEROCE_ABSENT(NODE, ibv_cmd_resize_cq)              \
    FEROCE_ABSENT(NODE, verbs_init_cq)                  \
    FEROCE_ABSENT(NODE, verbs_set_ops)                  \
    FEROCE_ABSENT(NODE, verbs_uninit_context)

#define FEROCE_SINCE_59(NODE)                     \
    FEROCE_ABSENT(NODE, ibv_cmd_alloc_dmah)       \
    FEROCE_ABSENT(NODE, ibv_cmd_export_dmabuf_fd) \
    FEROCE_ABSENT(NODE, ibv_cmd_free_dmah)        \
    FEROCE_ABSENT(NODE, ibv_cmd_query_port_speed) \
    FEROCE_ABSENT(NODE, ibv_cmd_reg_mr_ex)

#define FEROCE_SINCE_64(NODE)                                   \
    FEROCE_ABSENT_POINTER(NODE, ibv_dmabuf_heap_alloc)          \
    FEROCE_ABSENT_POINTER(NODE, ibv_dmabuf_heap_cc_shared_init) \
    FEROCE_ABSENT(NODE, ibv_dmabuf_heap_destroy)                \
    FEROCE_ABSENT(NODE, ibv_dmabuf_heap_free)

#define FEROCE_SINCE_65(NODE)                         \
    FEROCE_ABSENT(NODE, ibv_cmd_create_comp_cntr)     \
    FEROCE_ABSENT(NODE, ibv_cmd_destroy_comp_cntr)    \
    FEROCE_ABSENT(NODE, ibv_cmd_inc_comp_cntr)        \
    FEROCE_ABSENT(NODE, ibv_cmd_inc_err_comp_cntr)    \
    FEROCE_ABSENT(NODE, ibv_cmd_qp_attach_comp_cntr)  \
    FEROCE_ABSENT(NODE, ibv_cmd_query_comp_cntr_caps) \
    FEROCE_ABSENT(NODE, ibv_cmd_read_comp_cntr)       \
    FEROCE_ABSENT(NODE, ibv_cmd_read_err_comp_cntr)   \
    FEROCE_ABSENT(NODE, ibv_cmd_set_comp_cntr)        \
    FEROCE_ABSENT(NODE, ibv_cmd_set_err_comp_cntr)

#pragma GCC visibility push(default)
extern "C" {

FEROCE_PRESENT(25)
FEROCE_SINCE_57(25)
FEROCE_ABSENT(25, ibv_cmd_query_device)
FEROCE_ABSENT(25, ibv_cmd_query_device_ex)
FEROCE_ABSENT(25, ibv_get_fw_ver)

FEROCE_PRESENT(33)
FEROCE_SINCE_57(33)
FEROCE_ABSENT(33, ibv_cmd_query_device)

FEROCE_PRESENT(57)
FEROCE_SINCE_57(57)

FEROCE_PRESENT(59)
FEROCE_SINCE_57(59)
FEROCE_SINCE_59(59)

FEROCE_PRESENT(64)
FEROCE_SINCE_57(64)
FEROCE_SINCE_59(64)
FEROCE_SINCE_64(64)

FEROCE_PRESENT(65)
FEROCE_SINCE_57(65)
FEROCE_SINCE_59(65)
FEROCE_SINCE_64(65)
FEROCE_SINCE_65(65)

}  // extern "C"
#pragma GCC visibility pop
