// What tests that plant bugs in a simulated node have in common.
#pragma once

#include <cstdint>

#include "sim/workload/scenario.hpp"

namespace feroce::sim {

inline bool is_send(const transport::Completion& completion) {
    return static_cast<std::uint8_t>(completion.opcode) < 128;
}

template <class F>
void for_each_qp(Node& node, F&& f) {
    for (std::uint32_t shard = 0; shard < node.shards(); ++shard)
        node.engine(shard).qps().for_each(f);
}

}  // namespace feroce::sim
