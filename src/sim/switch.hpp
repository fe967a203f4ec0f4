// Switch: forwards frames by destination address, multicast to the members of the group. Queues
// stand in the links behind it. Frames to an unknown address vanish, as on a real network.
#pragma once

#include <map>
#include <set>

#include "base/gid.hpp"
#include "sim/frame.hpp"

namespace feroce::sim {

class Switch final : public FrameSink {
public:
    void attach(const Gid& address, FrameSink& sink) { routes_[address] = &sink; }
    // `member` is an attached address.
    void join(const Gid& group, const Gid& member) { groups_[group].insert(member); }
    void leave(const Gid& group, const Gid& member) { groups_[group].erase(member); }

    void deliver(const FramePtr& frame) override;

private:
    void forward(const Gid& address, const FramePtr& frame);

    std::map<Gid, FrameSink*> routes_;
    std::map<Gid, std::set<Gid>> groups_;
};

}  // namespace feroce::sim
