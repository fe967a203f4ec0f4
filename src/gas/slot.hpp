// What a chain holds while it is in flight: buffers, and a work request and an operation per step.
// It belongs to the lanes, not to the chain, so that a chain whose time is up can end before its
// completion comes. The device only ever sees these buffers: what arrives later touches nothing
// that is the caller's again.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <optional>

#include "feroce/gas/chain.hpp"
#include "feroce/memory.hpp"
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
    std::size_t count = 0;               // Steps posted; the completion of the last one ends it.
    std::byte* buffer = nullptr;         // kChainBytes.
    std::optional<rdma::Buffer> larger;  // For a chain that needs more; kept if it is not large.
    // Where each step's bytes are in one of them; null: inline.
    std::array<std::byte*, kChainSteps> place{};
    std::array<StepOperation, kChainSteps> operations;
    std::array<ibv_send_wr, kChainSteps> requests;  // As posted; meaningless afterwards,
    std::array<ibv_sge, kChainSteps> pieces;        // like these.
};

}  // namespace feroce::gas::detail
