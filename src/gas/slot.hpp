// What a chain holds while it is under way: buffers, and a work request and an operation per step.
// It belongs to the lanes, not to the chain, so that a chain whose time is up can end before its
// completion comes.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>

#include "feroce/gas/chain.hpp"
#include "feroce/operation.hpp"

namespace feroce::gas::detail {

struct Slot {
    struct StepOperation : rdma::Operation {
        Slot* slot = nullptr;
        std::size_t index = 0;
    };

    Lanes* lanes = nullptr;
    Slot* next = nullptr;    // That is free, or in the same batch.
    Chain* chain = nullptr;  // Null: free, or nobody waits any more.
    NodeId node{};
    std::size_t count = 0;  // Steps posted; the completion of the last one ends it.
    std::byte* buffer = nullptr;
    // Where each step's bytes are in `buffer`; null if in the caller's memory.
    std::array<std::byte*, kChainSteps> place{};
    std::array<StepOperation, kChainSteps> operations;
    std::array<ibv_send_wr, kChainSteps> requests;  // As posted; meaningless afterwards,
    std::array<ibv_sge, kChainSteps> pieces;        // like these.
};

}  // namespace feroce::gas::detail
