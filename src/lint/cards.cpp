#include "lint/cards.hpp"

#include <algorithm>

namespace feroce::lint {
namespace {

constexpr Card kCards[] = {
    // ConnectX-4 and later.
    {.name = "mlx5",
     // perftest's perftest_parameters.h: MAX_INLINE and MAX_INLINE_UD.
     .inline_max = 912,
     .inline_max_datagram = 884,
     // ibv_devinfo -v in ofiwg/libfabric#9940: max_sge 30, max_cqe 4194303, max_qp_rd_atom 16; the
     // same max_sge for receives.
     .send_sges = 30,
     .receive_sges = 30,
     // ibv_devinfo -v in ofiwg/libfabric#8256 and openucx/ucx#8229: max_qp_wr 32768.
     .work_requests = 32'768,
     .completions = 4'194'303,
     .reads = 16},
    // Linux's soft RoCE, drivers/infiniband/sw/rxe/rxe_param.h of the 5.4 series; later ones grant
    // more.
    {.name = "rxe",
     .inline_max = 400,           // RXE_MAX_INLINE_DATA
     .inline_max_datagram = 400,  // RXE_MAX_INLINE_DATA
     .send_sges = 32,             // RXE_MAX_SGE
     .receive_sges = 32,          // RXE_MAX_SGE
     .shared_sges = 27,           // RXE_MAX_SRQ_SGE
     .work_requests = 0x4000,     // RXE_MAX_QP_WR
     .completions = 32'767,       // (1 << RXE_MAX_LOG_CQE) - 1
     .reads = 128},               // RXE_MAX_QP_RD_ATOM
    // Amazon's Elastic Fabric Adapter.
    {.name = "efa",
     // rdma-core's providers/efa/efa_io_defs.h: EFA_IO_TX_DESC_INLINE_MAX_SIZE, _NUM_BUFS.
     .inline_max = 32,
     .inline_max_datagram = 32,
     .send_sges = 2,
     // No RC and no shared receive queue: deepseek-ai/3FS#106. The same file of rdma-core has
     // send, read and write as the only kinds of request.
     .connects = false,
     .shares_receives = false,
     .has_atomics = false},
};

}  // namespace

const Card* find_card(std::string_view name) {
    const auto* found = std::find_if(std::begin(kCards), std::end(kCards),
                                     [name](const Card& card) { return card.name == name; });
    return found == std::end(kCards) ? nullptr : found;
}

}  // namespace feroce::lint
