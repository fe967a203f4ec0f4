// Records as iproute2's `rdma` prints them: a line of words each, or a JSON array. The first keys
// of a record (ifindex, ifname, and port for a link) make up the head of its line.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace feroce::cli {

using Json = nlohmann::ordered_json;

struct OutputOptions {
    bool json = false;
    bool pretty = false;
};

void print_json(const Json& value, const OutputOptions& options);
void print_records(const Json& records, const OutputOptions& options);

// What the caller typed makes no sense; the text says so in one sentence. Exit status 2.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace feroce::cli
