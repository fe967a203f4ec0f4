#include "cli/web/document.hpp"

#include <algorithm>
#include <map>
#include <set>
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

// The newest of each process first, then the next of each: a process with many failures must not
// hide those of others. A process tells its own oldest first.
std::vector<const Json*> newest_first(const Json& all, bool alive) {
    std::map<Json, std::size_t> told;  // Of each process.
    std::map<std::size_t, std::vector<const Json*>> by_age;
    for (auto failure = all.rbegin(); failure != all.rend(); ++failure)
        if ((*failure)["alive"] == alive) by_age[told[(*failure)["pid"]]++].push_back(&*failure);
    std::vector<const Json*> out;
    for (const auto& [age, failures] : by_age)
        out.insert(out.end(), failures.begin(), failures.end());
    return out;
}

// One more for each process that the failure concerns.
void count_for_processes(const Json& failure, Json& counts) {
    std::set<std::string> pids{failure["pid"].dump()};
    for (const Json& cause : failure["because"]) pids.insert(cause["pid"].dump());
    for (const std::string& pid : pids) counts[pid] = counts.value(pid, 0) + 1;
}

// Of live processes first: what is wrong now is looked for before what was.
void add_failures(const Json& all, Json& out) {
    Json shown = Json::array(), more_of = Json::object();
    for (const bool alive : {true, false})
        for (const Json* failure : newest_first(all, alive))
            if (shown.size() < kFailureRowsMax)
                shown.push_back(*failure);
            else
                count_for_processes(*failure, more_of);
    out["failures_more"] = all.size() - shown.size();
    out["failures_more_of"] = std::move(more_of);
    out["failures"] = std::move(shown);
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
    add_failures(facts.failures, out);
    out["unknown"] = facts.unknown;
    out["machine"] = facts.machine;
    out["user"] = facts.user;
    out["capture"] = facts.capture;
    out["version"] = FEROCE_VERSION;
    return out;
}

}  // namespace feroce::cli
