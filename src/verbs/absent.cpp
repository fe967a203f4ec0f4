// Calls of later releases for what this device has not: hints for a PCI bus, counters that a
// network card keeps instead of completions, and device memory that another device could map.
// Programs ask, are told EOPNOTSUPP, as by rdma-core for a card without them, and go on without.
#include "verbs/common.hpp"

namespace feroce::verbs {
namespace {

constexpr Error kNoHandles{EOPNOTSUPP, "DMA handles are hints for a PCI bus; there is none"};
constexpr Error kNoCounters{EOPNOTSUPP, "this device has no completion counters"};

}  // namespace
}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

ibv_dmah* ibv_alloc_dmah(ibv_context*, ibv_dmah_init_attr*) {
    return refuse_null("ibv_alloc_dmah", kNoHandles);
}

int ibv_dealloc_dmah(ibv_dmah*) {
    return refuse("ibv_dealloc_dmah", kNoHandles);
}

int ibv_dm_export_dmabuf_fd(ibv_dm*) {
    return refuse_minus("ibv_dm_export_dmabuf_fd",
                        {EOPNOTSUPP, "device memory is the process's own, not a dma-buf"});
}

int _ibv_query_comp_cntr_caps(ibv_context*, ibv_comp_cntr_caps*, std::size_t) {
    return refuse("ibv_query_comp_cntr_caps", kNoCounters);
}

ibv_comp_cntr* ibv_create_comp_cntr(ibv_context*, ibv_comp_cntr_init_attr*) {
    return refuse_null("ibv_create_comp_cntr", kNoCounters);
}

int ibv_destroy_comp_cntr(ibv_comp_cntr*) {
    return refuse("ibv_destroy_comp_cntr", kNoCounters);
}

int ibv_set_comp_cntr(ibv_comp_cntr*, std::uint64_t) {
    return refuse("ibv_set_comp_cntr", kNoCounters);
}

int ibv_set_err_comp_cntr(ibv_comp_cntr*, std::uint64_t) {
    return refuse("ibv_set_err_comp_cntr", kNoCounters);
}

int ibv_inc_comp_cntr(ibv_comp_cntr*, std::uint64_t) {
    return refuse("ibv_inc_comp_cntr", kNoCounters);
}

int ibv_inc_err_comp_cntr(ibv_comp_cntr*, std::uint64_t) {
    return refuse("ibv_inc_err_comp_cntr", kNoCounters);
}

int ibv_read_comp_cntr(ibv_comp_cntr*, std::uint64_t*) {
    return refuse("ibv_read_comp_cntr", kNoCounters);
}

int ibv_read_err_comp_cntr(ibv_comp_cntr*, std::uint64_t*) {
    return refuse("ibv_read_err_comp_cntr", kNoCounters);
}

int ibv_qp_attach_comp_cntr(ibv_qp*, ibv_comp_cntr*, ibv_qp_attach_comp_cntr_attr*) {
    return refuse("ibv_qp_attach_comp_cntr", kNoCounters);
}
