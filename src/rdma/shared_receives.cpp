#include "feroce/shared_receives.hpp"

#include <cerrno>

#include "rdma/failure.hpp"

namespace feroce::rdma {

Result<SharedReceives> SharedReceives::create(ibv_pd* domain, std::uint32_t depth,
                                              std::uint32_t sge) {
    ibv_srq_init_attr wanted{};
    wanted.attr = {depth, sge, 0};
    ibv_srq* const srq = ::ibv_create_srq(domain, &wanted);
    if (srq == nullptr) return failure("no shared receive queue of that depth could be made");
    return SharedReceives(srq);
}

Result<> SharedReceives::post(const Regions& into, Operation& operation) {
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = to_wr_id(&operation);
    wr.sg_list = into.sges();
    wr.num_sge = into.count();
    const int code = ::ibv_post_srq_recv(srq_.get(), &wr, &bad);
    if (code == 0) return {};
    if (code == ENOMEM)
        return Error(ENOMEM, "more receives are posted than the shared queue is deep");
    return failure("a receive was refused by the shared queue", code);
}

Result<> SharedReceives::warn_below(std::uint32_t receives) {
    ibv_srq_attr attributes{};
    attributes.srq_limit = receives;
    const int code = ::ibv_modify_srq(srq_.get(), &attributes, IBV_SRQ_LIMIT);
    if (code == 0) return {};
    return failure("the shared queue takes no such limit", code);
}

}  // namespace feroce::rdma
