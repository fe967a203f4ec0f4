// GroupMembership: a claimed slot of the process's port group, released at destruction. The group
// itself lives as long as one of its slots is held; then the process leaves it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "port/port_group.hpp"

namespace feroce::port {

class GroupMembership {
public:
    GroupMembership(std::shared_ptr<PortGroup> group, SlotNumber slot)
        : group_(std::move(group)), slot_(slot) {}
    GroupMembership(GroupMembership&&) = default;
    GroupMembership& operator=(GroupMembership&&) = delete;
    ~GroupMembership() {
        if (group_) group_->release(slot_);
    }

    SlotNumber slot() const { return slot_; }
    PortGroup& group() const { return *group_; }
    int socket_v4() const { return group_->socket_v4(slot_); }
    int socket_v6() const { return group_->socket_v6(slot_); }

private:
    std::shared_ptr<PortGroup> group_;  // Null once moved from.
    SlotNumber slot_;
};

}  // namespace feroce::port
