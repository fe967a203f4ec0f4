// A count that all nodes of a cluster can wait for, on a node that stays. One that is to die or to
// stop after a barrier waits until all have counted themselves behind it: a node that is still in
// the barrier would be told of the loss there, and not at the next one.
#pragma once

#include <unistd.h>

#include "feroce/gas/node.hpp"

namespace feroce::gas {

class Counted {
public:
    // All nodes call it. The count is on another node than `leaves`.
    Counted(Node& node, int leaves) : node_(&node) {
        const NodeId home{static_cast<std::uint16_t>(leaves == 0 ? node.size() - 1 : 0)};
        if (node.id() == home)
            node.publish("count", node.allocate(nic<std::uint64_t>()).value()).value();
        count_ = node.find<nic<std::uint64_t>>("count").value();
    }

    void add() { node_->fetch_add(count_, 1).value(); }
    // False if it is not reached within a minute.
    bool reaches(std::uint64_t wanted) {
        for (int i = 0; i < 60'000; ++i) {
            if (node_->read(count_).value() >= wanted) return true;
            usleep(1000);
        }
        return false;
    }

private:
    Node* node_;
    ptr<nic<std::uint64_t>> count_;
};

}  // namespace feroce::gas
