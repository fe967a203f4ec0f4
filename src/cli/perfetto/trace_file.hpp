// TraceFile: a file of trace events in JSON, the format of Chrome's tracing that Perfetto's UI
// opens (https://ui.perfetto.dev). It is an array that needs no end, so what was written before a
// program was interrupted can be looked at.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/output.hpp"

namespace feroce::cli {

// A group of tracks has a number and a name; within it rows are numbered too.
struct TracePlace {
    std::uint32_t group = 0;
    std::uint32_t row = 0;
};

// All calls throw UsageError if the file cannot be made or written.
class TraceFile {
public:
    explicit TraceFile(const std::string& path);

    void name_group(std::uint32_t group, const std::string& name);
    void name_row(TracePlace place, const std::string& name);

    // Times are microseconds since whatever the trace takes for its beginning.
    void instant(TracePlace place, double us, const std::string& name, Json details);
    // Spans that may overlap others of their group; `id` is of one alone.
    void begin(TracePlace place, double us, std::uint64_t id, const std::string& name,
               Json details);
    void mark(TracePlace place, double us, std::uint64_t id, const std::string& name);  // Inside.
    void end(TracePlace place, double us, std::uint64_t id, const std::string& name, Json details);
    void count(std::uint32_t group, double us, const std::string& name, const std::string& unit,
               double value);

    void flush();
    void finish();  // All is written when it returns.

private:
    void write(const Json& event);
    void put(const std::string& text);
    [[noreturn]] void fail() const;

    std::string path_;
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
    bool any_ = false;
};

}  // namespace feroce::cli
