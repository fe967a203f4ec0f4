// rdma-core's public header, as those see it who implement it: its declarations exported (the build
// hides everything else) and without the macros that hide its functions.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
// Debian 13's header (release 56) has it, that of Debian 12 has not.
extern "C" const char* ibv_wr_opcode_str(ibv_wr_opcode opcode);
// Of release 62, in units of 100 Mb/s.
extern "C" int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed);
#pragma GCC visibility pop

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
