// See session_directory.hpp. What is said here is read by src/cli/session.cpp.
#include "rtrs/session_directory.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "rtrs/control_names.hpp"
#include "rtrs/session_core.hpp"

namespace feroce::rtrs {

namespace {

using Words = ControlDoor::Words;

std::string failed(const std::string& sentence) {
    return std::string(control::kError) + "\n" + sentence + "\n";
}

std::string said(const rdma::Result<>& result) {
    return result ? std::string(control::kOk) + "\n" : failed(result.error().why);
}

// Lines of keys and values.
class Text {
public:
    void add(std::string_view key, std::string_view value) {
        text_.append(key).append(" ");
        for (const char c : value) text_ += std::iscntrl(static_cast<unsigned char>(c)) ? '?' : c;
        text_ += '\n';
    }
    void add(std::string_view key, std::uint64_t value) { add(key, std::to_string(value)); }
    void add(std::string_view key, Duration value) { add(key, std::to_string(value.count())); }
    std::string take() { return std::move(text_); }

private:
    std::string text_;
};

void add_latency(Text& out, const Histogram& latency) {
    out.add("latency_p50_ns", latency.percentile(0.5));
    out.add("latency_p99_ns", latency.percentile(0.99));
    out.add("latency_max_ns", latency.percentile(1));
}

void add_path(Text& out, std::size_t number, const PathStatistics& path) {
    out.add("path", number);
    out.add("destination", path.address.destination);
    out.add("source", path.address.source);
    out.add("state", name_of(path.state));
    out.add("heartbeat_ns", path.latency);
    out.add("inflight", path.inflight);
    add_latency(out, path.requests);
    out.add("reads", path.reads);
    out.add("read_bytes", path.read_bytes);
    out.add("writes", path.writes);
    out.add("write_bytes", path.write_bytes);
    out.add("failovers", path.failovers);
    out.add("connects", path.connects);
    out.add("connect_failures", path.connect_failures);
    out.add("last_error", path.last_error);
}

std::string report(SessionCore& session) {
    const SessionStatistics now = session.statistics();
    Text out;
    out.add("session", session.name());
    out.add("policy", name_of(session.policy()));
    out.add("queue_depth", now.queue_depth);
    out.add("permits_taken", now.permits_taken);
    out.add("permit_waiters", now.permit_waiters);
    out.add("completed", now.completed);
    out.add("failed", now.failed);
    out.add("fences", now.fences);
    out.add("epochs_lost", now.epochs_lost);
    add_latency(out, now.latency);
    for (const PathStatistics& path : now.paths) add_path(out, path.number, path);
    return out.take();
}

rdma::Result<ClientPath*> path_named(SessionCore& session, std::string_view word) {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc{} || end != word.data() + word.size())
        return rdma::Error(EINVAL, "a path is named by its number, as `session show` tells it");
    return session.path(number);
}

std::string change_path(SessionCore& session, const Words& words, void (ClientPath::*change)()) {
    auto path = path_named(session, words[2]);
    if (!path) return failed(path.error().why);
    ((*path)->*change)();
    return said({});
}

}  // namespace

std::shared_ptr<SessionCore> SessionDirectory::find_or_make(const std::string& name,
                                                            SessionOptions options) {
    std::erase_if(sessions_, [](const auto& entry) { return entry.second.expired(); });
    if (!door_)
        door_ = ControlDoor::open(loop_, [this](const Words& words) { return answer(words); });
    std::shared_ptr<SessionCore> core = sessions_[name].lock();
    if (!core) {
        core = std::make_shared<SessionCore>(loop_, name, std::move(options), shared_from_this());
        sessions_[name] = core;
    }
    return core;
}

std::string SessionDirectory::answer(const Words& words) {
    if (words.empty()) return failed("an empty request");
    if (words[0] == control::kShow && words.size() == 1) {
        std::string out = said({});
        for (const auto& [name, session] : sessions_)
            if (const auto live = session.lock()) out += report(*live);
        return out;
    }
    const auto found = words.size() > 1 ? sessions_.find(words[1]) : sessions_.end();
    const auto session = found == sessions_.end() ? nullptr : found->second.lock();
    if (!session) return failed("there is no such session");
    if (words[0] == control::kShow) return said({}) + report(*session);
    if (words.size() < 3) return failed("the request lacks a word");
    return change(*session, words);
}

std::string SessionDirectory::change(SessionCore& session, const Words& words) {
    if (words[0] == control::kRemovePath) return change_path(session, words, &ClientPath::remove);
    if (words[0] == control::kDisconnect)
        return change_path(session, words, &ClientPath::disconnect);
    if (words[0] == control::kReconnect) return change_path(session, words, &ClientPath::reconnect);
    if (words[0] == control::kPolicy) {
        const auto policy = policy_of(words[2]);
        if (!policy)
            return failed("policies are round-robin, min-inflight, min-latency and fill-first");
        session.set_policy(*policy);
        return said({});
    }
    if (words[0] != control::kAddPath) return failed("the request is not understood");
    const PathAddress address{std::string(words[2]),
                              words.size() > 3 ? std::string(words[3]) : std::string()};
    auto added = session.add_path(address);
    return added ? said({}) : failed(added.error().why);
}

}  // namespace feroce::rtrs
