// What a failure asked of memory, for its sentence: key, address, length, and what has that key. On
// the way of failures only.
#pragma once

#include <span>

#include "mem/memory.hpp"
#include "mem/sge.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

// The first entry of a list that may not be used so; nothing if all may.
mem::Attempt first_bad(const mem::Memory& memory, PdId pd, std::span<const mem::Sge> list,
                       mem::AccessSet need);

// Completes a reason whose rule is about memory. The request that failed is the oldest one.
void name_memory(QueuePair& qp, Reason& reason);

}  // namespace feroce::transport
