#include "cli/web/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace feroce::cli {
namespace {

constexpr std::uint8_t kErr = 6;  // libibverbs' number of the state.

using Address = std::array<std::uint8_t, 16>;
// One end of a connection: our QPN, the peer's, our address, the peer's.
using End = std::tuple<std::uint32_t, std::uint32_t, Address, Address>;

struct Edge {
    std::size_t queue_pairs = 0;
    std::size_t failed = 0;
    bool by_ring = false, by_udp = false;
    std::uint64_t rtt_ns = 0;
    Rate there, back;

    // The order in which edges are kept.
    std::pair<std::size_t, double> weight() const {
        return {failed, there.value_or(0) + back.value_or(0)};
    }
};

using Name = std::string;  // Of a node.
using Edges = std::map<std::pair<Name, Name>, Edge>;

End end_of(const process::StateQp& qp) {
    return {qp.qpn, qp.peer_qpn, qp.source.raw, qp.destination.raw};
}

End peer_of(const process::StateQp& qp) {
    return {qp.peer_qpn, qp.qpn, qp.destination.raw, qp.source.raw};
}

Name process_name(std::uint32_t pid) {
    return fmt::format("pid {}", pid);
}

void add_rate(Rate& to, const Rate& more) {
    if (more) to = to.value_or(0) + *more;
}

bool has_peer(const process::StateQp& qp) {
    return qp.peer_qpn != 0 && !qp.destination.is_zero();
}

// A connection between two processes is seen twice, once from each end; it is one edge, and counted
// by its first end. `there` is what the first sends.
Edges edges_of(const TopSample& sample) {
    std::map<End, const TopQp*> ends;
    for (const TopQp& qp : sample.qps)
        if (has_peer(qp.state)) ends[end_of(qp.state)] = &qp;
    Edges out;
    for (const TopQp& qp : sample.qps) {
        if (!has_peer(qp.state)) continue;
        const auto peer = ends.find(peer_of(qp.state));
        const bool known = peer != ends.end();
        const Name own = process_name(qp.pid);
        const Name other =
            known ? process_name(peer->second->pid) : to_string(qp.state.destination);
        const bool first =
            !known || std::pair(own, qp.state.qpn) <= std::pair(other, peer->second->state.qpn);
        Edge& edge = out[first ? std::pair(own, other) : std::pair(other, own)];
        add_rate(first ? edge.there : edge.back, qp.sent_packets);
        if (!known) add_rate(edge.back, qp.received_packets);
        if (first) ++edge.queue_pairs;
        if (qp.state.state == kErr && (first || peer->second->state.state != kErr)) ++edge.failed;
        (qp.state.by_ring != 0 ? edge.by_ring : edge.by_udp) = true;
        edge.rtt_ns = std::max(edge.rtt_ns, qp.state.rtt_ns);
    }
    return out;
}

Json as_json(const std::pair<Name, Name>& ends, const Edge& edge) {
    const auto number = [](const Rate& rate) { return rate ? Json(*rate) : Json(); };
    return {{"from", ends.first},
            {"to", ends.second},
            {"queue_pairs", edge.queue_pairs},
            {"failed", edge.failed},
            {"by", edge.by_ring && edge.by_udp ? "ring and udp"
                   : edge.by_ring              ? "ring"
                                               : "udp"},
            {"rtt_ns", edge.rtt_ns},
            {"there", number(edge.there)},
            {"back", number(edge.back)}};
}

Json as_json(const TopProcess& process) {
    return {{"id", process_name(process.pid)},   {"pid", process.pid},
            {"comm", process.command},           {"ifname", process.device},
            {"answers", !process.silent},        {"errors", process.traffic.errors},
            {"queue_pairs", process.queue_pairs}};
}

// Those with connections first, then the busiest.
std::vector<const TopProcess*> by_importance(const TopSample& sample,
                                             const std::set<Name>& connected) {
    std::vector<const TopProcess*> out;
    for (const TopProcess& process : sample.processes) out.push_back(&process);
    const auto weight = [&](const TopProcess* p) {
        return std::tuple(connected.contains(process_name(p->pid)), p->traffic.errors,
                          p->traffic.sent_packets.value_or(0));
    };
    std::stable_sort(out.begin(), out.end(), [&](const TopProcess* a, const TopProcess* b) {
        return weight(a) > weight(b);
    });
    return out;
}

}  // namespace

Json graph_of(const TopSample& sample) {
    const Edges all = edges_of(sample);
    std::vector<Edges::const_iterator> sorted;
    for (auto at = all.begin(); at != all.end(); ++at) sorted.push_back(at);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](auto a, auto b) { return a->second.weight() > b->second.weight(); });
    std::set<Name> kept;
    std::vector<Edges::const_iterator> edges;
    for (const auto at : sorted) {
        std::set<Name> ends{at->first.first, at->first.second};
        std::erase_if(ends, [&kept](const Name& name) { return kept.contains(name); });
        if (edges.size() == kGraphEdgesMax || kept.size() + ends.size() > kGraphNodesMax) continue;
        kept.merge(ends);
        edges.push_back(at);
    }
    Json nodes = Json::array();
    std::size_t nodes_more = 0;
    std::set<Name> addresses = kept;
    for (const TopProcess* process : by_importance(sample, kept)) {
        const Name name = process_name(process->pid);
        addresses.erase(name);
        if (!kept.contains(name) && kept.size() >= kGraphNodesMax) {
            ++nodes_more;
            continue;
        }
        kept.insert(name);
        nodes.push_back(as_json(*process));
    }
    for (const Name& address : addresses) nodes.push_back({{"id", address}, {"address", address}});
    Json lines = Json::array();
    for (const auto at : edges) lines.push_back(as_json(at->first, at->second));
    return {{"nodes", std::move(nodes)},
            {"edges", std::move(lines)},
            {"nodes_more", nodes_more},
            {"edges_more", all.size() - edges.size()}};
}

}  // namespace feroce::cli
