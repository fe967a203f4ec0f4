// rdma-core's public header, as those see it who implement it: its declarations exported (the build
// hides everything else) and without the macros that hide its functions.
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
// Debian 13's header (release 56) has it, that of Debian 12 has not.
extern "C" const char* ibv_wr_opcode_str(ibv_wr_opcode opcode);
// Of release 62, in units of 100 Mb/s.
extern "C" int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed);

// Of releases 59 to 65, which neither header has. The structs are only named here, so that a header
// which has them may be included too.
struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

extern "C" {
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attributes);
void* ibv_alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** out);
void ibv_free_buf(ibv_buf* buffer);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, std::size_t length, int access);
int ibv_export_buf_dmabuf_fd(ibv_buf* buffer);
int ibv_dm_export_dmabuf_fd(ibv_dm* dm);

ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attributes);
int ibv_dealloc_dmah(ibv_dmah* handle);

int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* out, std::size_t size);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attributes);
int ibv_destroy_comp_cntr(ibv_comp_cntr* counter);
int ibv_set_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value);
int ibv_set_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value);
int ibv_inc_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount);
int ibv_inc_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount);
int ibv_read_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* out);
int ibv_read_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* out);
int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter,
                            ibv_qp_attach_comp_cntr_attr* attributes);
}
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
