#include "cli/perfetto/trace_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
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
    std::fputs("[\n", file_.get());
}

void TraceFile::write(const Json& event) {
    const std::string text = event.dump();
    fmt::print(file_.get(), "{}{}", any_ ? ",\n" : "", text);
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
    std::fflush(file_.get());
}

void TraceFile::finish() {
    std::fputs("\n]\n", file_.get());
    if (std::fflush(file_.get()) != 0 || std::ferror(file_.get()) != 0)
        throw std::runtime_error(fmt::format("{}: {}", path_, std::strerror(errno)));
}

}  // namespace feroce::cli
