#include "sim/switch.hpp"

namespace feroce::sim {

void Switch::deliver(const FramePtr& frame) {
    const Gid& destination = frame->address.destination;
    if (!destination.is_multicast()) return forward(destination, frame);
    const auto group = groups_.find(destination);
    if (group == groups_.end()) return;
    for (const Gid& member : group->second) {
        if (member != frame->address.source) forward(member, frame);
    }
}

void Switch::forward(const Gid& address, const FramePtr& frame) {
    const auto route = routes_.find(address);
    if (route != routes_.end()) route->second->deliver(frame);
}

}  // namespace feroce::sim
