#include "cli/perfetto/trace_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace feroce::cli {
namespace {

Json event_at(const char* phase, TracePlace place, double us, const std::string& name) {
    return {{"ph", phase}, {"pid", place.group}, {"tid", place.row}, {"ts", us}, {"name", name}};
}

Json span_at(const char* phase, TracePlace place, double us, std::uint64_t id,
             const std::string& name) {
    Json out = event_at(phase, place, us, name);
    out["cat"] = "work";
    out["id"] = fmt::format("0x{:x}", id);
    return out;
}

}  // namespace

TraceFile::TraceFile(const std::string& path)
    : path_(path), file_(std::fopen(path.c_str(), "we"), std::fclose) {
    if (file_ == nullptr) throw UsageError(fmt::format("{}: {}", path, std::strerror(errno)));
    put("[\n");
}

void TraceFile::put(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail();
}

void TraceFile::fail() const {
    throw UsageError(fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
}

void TraceFile::write(const Json& event) {
    put((any_ ? ",\n" : "") + event.dump());
    any_ = true;
}

void TraceFile::name_group(std::uint32_t group, const std::string& name) {
    write({{"ph", "M"}, {"pid", group}, {"name", "process_name"}, {"args", {{"name", name}}}});
}

void TraceFile::name_row(TracePlace place, const std::string& name) {
    write({{"ph", "M"},
           {"pid", place.group},
           {"tid", place.row},
           {"name", "thread_name"},
           {"args", {{"name", name}}}});
}

void TraceFile::instant(TracePlace place, double us, const std::string& name, Json details) {
    Json event = event_at("i", place, us, name);
    event["s"] = "t";
    event["args"] = std::move(details);
    write(event);
}

void TraceFile::begin(TracePlace place, double us, std::uint64_t id, const std::string& name,
                      Json details) {
    Json event = span_at("b", place, us, id, name);
    event["args"] = std::move(details);
    write(event);
}

void TraceFile::mark(TracePlace place, double us, std::uint64_t id, const std::string& name) {
    write(span_at("n", place, us, id, name));
}

void TraceFile::end(TracePlace place, double us, std::uint64_t id, const std::string& name,
                    Json details) {
    Json event = span_at("e", place, us, id, name);
    event["args"] = std::move(details);
    write(event);
}

void TraceFile::count(std::uint32_t group, double us, const std::string& name,
                      const std::string& unit, double value) {
    Json event = event_at("C", {group, 0}, us, name);
    event["args"] = {{unit, value}};
    write(event);
}

void TraceFile::flush() {
    if (std::fflush(file_.get()) != 0) fail();
}

void TraceFile::finish() {
    put("\n]\n");
    flush();
}

}  // namespace feroce::cli
