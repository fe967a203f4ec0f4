#include "cli/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "cli/session_doors.hpp"
#include "rtrs/control_names.hpp"

namespace feroce::cli {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kSessionUsage =
    "usage: feroce session ls | show [SESSION] | stat [SESSION] | path add SESSION ADDRESS [SOURCE]"
    " | path rm|disconnect|reconnect SESSION PATH | policy SESSION POLICY";

// What `show` and `stat` tell of a session and of a path; the rest is told by the other.
constexpr std::string_view kShown[] = {"pid",         "comm",         "session",     "policy",
                                       "queue_depth", "path",         "destination", "source",
                                       "state",       "heartbeat_ns", "last_error"};

bool is_shown(std::string_view key) {
    return std::find(std::begin(kShown), std::end(kShown), key) != std::end(kShown);
}

bool is_head(std::string_view key) {
    return key == "pid" || key == "comm" || key == "session" || key == "path" ||
           key == "destination";
}

Json part_of(const Json& record, bool counters) {
    Json out = Json::object();
    for (const auto& [key, value] : record.items()) {
        if (key == "paths") {
            out["paths"] = Json::array();
            for (const Json& path : value) out["paths"].push_back(part_of(path, counters));
        } else if (is_head(key) || is_shown(key) != counters) {
            out[key] = value;
        }
    }
    return out;
}

// NAME, or PID:NAME where several programs have a session of that name.
bool is_named(const LiveSession& session, const std::string& text) {
    return session.name == text ||
           fmt::format("{}:{}", session.record["pid"].dump(), session.name) == text;
}

std::vector<LiveSession> chosen(const std::optional<std::string>& name) {
    std::vector<LiveSession> all = live_sessions();
    if (!name) return all;
    std::erase_if(all, [&](const LiveSession& session) { return !is_named(session, *name); });
    if (all.empty())
        throw UsageError(fmt::format("there is no session {}; see feroce session ls", *name));
    return all;
}

LiveSession the_one(const std::string& name) {
    const std::vector<LiveSession> found = chosen(name);
    if (found.size() > 1)
        throw UsageError(
            fmt::format("{} programs have a session {}: say PID:{}", found.size(), name, name));
    return found.front();
}

std::string text_of(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_lines(const Json& record, const std::string& indent) {
    std::string line;
    for (const auto& [key, value] : record.items())
        if (!value.is_array() && !(value.is_string() && value.get<std::string>().empty()))
            line += fmt::format(" {} {}", key, text_of(value));
    fmt::print("{}{}\n", indent, line.substr(1));
    if (!record.contains("paths") || !record["paths"].is_array()) return;
    for (const Json& path : record["paths"]) print_lines(path, indent + "  ");
}

std::size_t paths_up(const Json& paths) {
    return static_cast<std::size_t>(std::count_if(
        paths.begin(), paths.end(), [](const Json& path) { return path["state"] == "connected"; }));
}

Json summary(const Json& record) {
    const Json paths = record.value("paths", Json::array());
    return {{"pid", record["pid"]},         {"comm", record["comm"]},
            {"session", record["session"]}, {"paths", paths.size()},
            {"paths_up", paths_up(paths)},  {"completed", record["completed"]},
            {"failed", record["failed"]}};
}

int print(const std::vector<Json>& records, const OutputOptions& options) {
    if (options.json) {
        print_json(Json(records), options);
        return 0;
    }
    for (const Json& record : records) print_lines(record, "");
    if (!records.empty()) return 0;
    fmt::print(stderr, "feroce: no program of this user has a session\n");
    return 1;
}

int list(const OutputOptions& options) {
    std::vector<Json> records;
    for (const LiveSession& found : live_sessions()) {
        Json record = summary(found.record);
        if (!options.json) {
            record["paths"] =
                fmt::format("{}/{}", record["paths_up"].dump(), record["paths"].dump());
            record.erase("paths_up");
        }
        records.push_back(std::move(record));
    }
    return print(records, options);
}

int show(const std::optional<std::string>& name, bool counters, const OutputOptions& options) {
    std::vector<Json> records;
    for (const LiveSession& found : chosen(name))
        records.push_back(part_of(found.record, counters));
    return print(records, options);
}

int change(const std::string& name, std::string_view what, const Words& more) {
    const LiveSession session = the_one(name);
    Words request{std::string(what), session.name};
    request.insert(request.end(), more.begin(), more.end());
    const std::string refusal = tell(session.door, request);
    if (refusal.empty()) return 0;
    fmt::print(stderr, "feroce: session {}: {}\n", name, refusal);
    return 1;
}

// A path by its number, or by its destination if no other goes there.
std::string number_of(const LiveSession& session, const std::string& text) {
    std::vector<std::string> found;
    for (const Json& path : session.record.value("paths", Json::array()))
        if (path["destination"] == text || path["path"].dump() == text)
            found.push_back(path["path"].dump());
    if (found.empty())
        throw UsageError(fmt::format("session {} has no path {}", session.name, text));
    if (found.size() > 1)
        throw UsageError(fmt::format("several paths go to {}: name one by its number", text));
    return found.front();
}

int change_path(const Words& words) {
    namespace control = rtrs::control;
    const std::string& verb = words[1];
    const std::string& name = words[2];
    if (verb == "add") return change(name, control::kAddPath, {words.begin() + 3, words.end()});
    const std::string_view what = verb == "rm"           ? control::kRemovePath
                                  : verb == "disconnect" ? control::kDisconnect
                                  : verb == "reconnect"  ? control::kReconnect
                                                         : std::string_view();
    if (what.empty() || words.size() != 4) throw UsageError(kSessionUsage);
    return change(name, what, {number_of(the_one(name), words[3])});
}

}  // namespace

int session(const Words& words, const OutputOptions& options) {
    const std::string verb = words.empty() ? "ls" : words[0];
    const auto name = words.size() > 1 ? std::optional(words[1]) : std::nullopt;
    if (verb == "ls" && words.size() <= 1) return list(options);
    if (verb == "show" && words.size() <= 2) return show(name, false, options);
    if (verb == "stat" && words.size() <= 2) return show(name, true, options);
    if (verb == "path" && (words.size() == 4 || words.size() == 5)) return change_path(words);
    if (verb == "policy" && words.size() == 3)
        return change(words[1], rtrs::control::kPolicy, {words[2]});
    throw UsageError(kSessionUsage);
}

}  // namespace feroce::cli
