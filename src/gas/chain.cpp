#include "feroce/gas/chain.hpp"

#include <cerrno>

#include "feroce/gas/lanes.hpp"

namespace feroce::gas {

using detail::Fault;

Chain::Chain(Lanes& lanes, NodeId node)
    : Suspension(lanes.loop(),
                 [](Suspension& waiting, int code) {
                     Chain& self = static_cast<Chain&>(waiting);
                     if (self.done()) return;
                     self.fault_ = code == ETIMEDOUT ? Fault::TimedOut : Fault::Canceled;
                     self.lanes_.abandon(self);
                     self.finish();
                 }),
      lanes_(lanes),
      node_(node) {}

Chain::~Chain() {
    lanes_.abandon(*this);
}

Chain& Chain::add_step(NodeId node, const detail::Step& step) {
    if (node != node_) fault_ = Fault::Nodes;
    if (count_ == kChainSteps) {
        fault_ = Fault::Steps;
        return *this;
    }
    detail::Step& added = steps_[count_++];
    added = step;
    if (added.local == nullptr) added.local = &added.desired;
    return *this;
}

bool Chain::await_ready() {
    if (fault_ == Fault::None) fault_ = lanes_.check(*this);
    if (fault_ != Fault::None) return true;
    if (!lanes_.runs_here(*this)) return false;
    for (std::size_t i = 0; i < count_; ++i) lanes_.run_here(steps_[i]);
    return true;
}

bool Chain::start(std::coroutine_handle<> handle, const rdma::Limits* outer) {
    const int code = begin(handle, outer);
    if (code != 0) {
        fault_ = code == ETIMEDOUT ? Fault::TimedOut : Fault::Canceled;
        return false;
    }
    lanes_.launch(*this);
    return true;
}

Result<> Chain::outcome() {
    if (fault_ == Fault::None) return {};
    return lanes_.error_of(*this);
}

Result<> Chain::wait() {
    if (!await_ready() && start({}, nullptr)) drive();
    return outcome();
}

}  // namespace feroce::gas
