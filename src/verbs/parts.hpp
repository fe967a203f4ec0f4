// What the files of this room share beyond the tables of operations (ops.hpp). Each is defined in
// the file of its topic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"
#include "mem/memory.hpp"
#include "transport/types.hpp"
#include "transport/work.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

// device_query.cpp
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out, std::size_t size);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

// mr.cpp. `call` is who asks, for the log; the domain is filled in.
ibv_mr* register_region(const char* call, ibv_pd* pd, mem::RegionSpec spec);
// Null: the CPU reaches the memory.
Result<std::shared_ptr<mem::FarMemory>> find_far_memory(ibv_context* context, const void* address,
                                                        std::size_t length);

// dm.cpp: device memory under a second name, for ibv_import_dm.
ibv_dm* share_dm(ibv_context* context, std::uint32_t handle);  // Null if there is none.
void unshare_dm(ibv_dm* dm);

// ah.cpp: addresses, the program's form to the engine's and back.
Result<transport::AddressVector> address_vector(Context& context, const ibv_ah_attr& from);
ibv_ah_attr ah_attr(const transport::AddressVector& from);

// cq.cpp. `wc_flags` picks the read_* functions of an extended queue; 0 for a plain one.
ibv_cq_ex* make_cq(ibv_context* context, const ibv_cq_init_attr_ex& attributes);
// Makes progress if need be; true if there are completions to take.
bool look_for_completions(Cq& cq);
// Completions in the program's form.
unsigned int wc_flags(const transport::Completion& c);
std::uint8_t service_level(const transport::Completion& c);
std::uint32_t immediate_or_key(const transport::Completion& c);  // As it stands in ibv_wc.

// cq_ex.cpp
void fill_extended_operations(Cq& cq, std::uint64_t wc_flags);

// qp_attr.cpp: attributes, the program's form to the engine's and back. Only what `mask` names is
// looked at.
Result<transport::QpAttributes> qp_attributes(Context& context, const ibv_qp_attr& from, int mask);
// As ibv_query_qp tells them: PSNs are the next to be sent and to be received.
ibv_qp_attr qp_attr(const transport::QueuePair& qp, const ibv_qp_cap& capabilities);

inline constexpr std::uint32_t mtu_bytes(ibv_mtu mtu) {
    return 128u << mtu;
}
inline constexpr ibv_mtu mtu_enum(std::uint32_t bytes) {  // The largest that `bytes` hold.
    int value = IBV_MTU_256;
    while (value < IBV_MTU_4096 && mtu_bytes(static_cast<ibv_mtu>(value + 1)) <= bytes) ++value;
    return static_cast<ibv_mtu>(value);
}

// post.cpp: work requests, the program's form to the engine's.
void set_send_flags(transport::SendWr& wr, unsigned int flags);
mem::WindowBind window_bind(const ibv_mw& mw, std::uint32_t new_rkey, const ibv_mw_bind_info& info);
// The window's public key, once its bind is posted: as rxe and irdma write it back.
void note_bind(ibv_mw& mw, const mem::WindowBind& bind);

// qp_ex.cpp: the builder of a queue pair: ibv_wr_start, one call per part of a request, and
// ibv_wr_complete, which posts all requests or none.
bool builder_supports(ibv_qp_type type, std::uint64_t send_operations);
void fill_builder_operations(Qp& qp);

}  // namespace feroce::verbs

// explain.cpp
extern "C" std::size_t feroce_explain(ibv_qp* base, char* out, std::size_t size);
