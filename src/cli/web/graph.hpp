// Who is connected to whom: the queue pairs of a sample as a graph of processes. The other end of a
// connection is a process of this user if one has it, else an address.
//
// Pure, and bounded: what has failed or moves most is kept.
#pragma once

#include <cstddef>

#include "cli/output.hpp"
#include "cli/top/sample.hpp"

namespace feroce::cli {

inline constexpr std::size_t kGraphNodesMax = 60;
inline constexpr std::size_t kGraphEdgesMax = 200;

// {nodes: [{id, pid, comm, ifname, answers, errors, queue_pairs} or {id, address}],
//  edges: [{from, to, queue_pairs, failed, by, rtt_ns, there, back}],
//  nodes_more, edges_more}. Rates are packets a second, null if unknown.
Json graph_of(const TopSample& sample);

}  // namespace feroce::cli
