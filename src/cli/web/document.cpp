#include "cli/web/document.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "cli/top/views.hpp"
#include "cli/web/graph.hpp"

namespace feroce::cli {
namespace {

// Those that failed, then the busiest.
std::size_t keep_busiest(std::vector<TopQp>& qps) {
    const auto weight = [](const TopQp& qp) {
        return std::tuple(!qp.last_error.empty(),
                          qp.sent_packets.value_or(0) + qp.received_packets.value_or(0),
                          qp.state.sends_outstanding);
    };
    std::stable_sort(qps.begin(), qps.end(),
                     [&](const TopQp& a, const TopQp& b) { return weight(a) > weight(b); });
    const std::size_t more = qps.size() - std::min(qps.size(), kQpRowsMax);
    qps.resize(qps.size() - more);
    return more;
}

// Of live processes first: what is wrong now is looked for before what was.
Json newest_failures(const Json& all) {
    Json out = Json::array();
    for (const bool alive : {true, false})
        for (const Json& failure : all)
            if (failure["alive"] == alive && out.size() < kFailureRowsMax) out.push_back(failure);
    return out;
}

}  // namespace

Json document_of(WebFacts facts) {
    Json graph = graph_of(facts.sample);
    const std::size_t qps = facts.sample.qps.size();
    const std::size_t more = keep_busiest(facts.sample.qps);
    Json out = json_of(facts.sample);
    out["qps_all"] = qps;
    out["qps_more"] = more;
    out["graph"] = std::move(graph);
    out["failures"] = newest_failures(facts.failures);
    out["failures_more"] = facts.failures.size() - out["failures"].size();
    out["unknown"] = facts.unknown;
    out["machine"] = facts.machine;
    out["user"] = facts.user;
    out["capture"] = facts.capture;
    out["version"] = FEROCE_VERSION;
    return out;
}

}  // namespace feroce::cli
