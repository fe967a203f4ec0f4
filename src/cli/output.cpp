#include "cli/output.hpp"

#include <fmt/format.h>

namespace feroce::cli {
namespace {

std::string word(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// Queue pair numbers look alike in all that we print; in JSON they are numbers.
bool is_qpn(const std::string& key) {
    return key == "lqpn" || key == "rqpn";
}

std::string line(const Json& record) {
    const bool is_link = record.contains("port");
    std::string out =
        is_link ? fmt::format("link {}/{} ", word(record["ifname"]), word(record["port"]))
                : fmt::format("{}: {}: ", word(record["ifindex"]), word(record["ifname"]));
    for (const auto& [key, value] : record.items()) {
        if (key == "ifindex" || key == "ifname" || key == "port") continue;
        out += is_qpn(key) ? fmt::format("{} 0x{:06x} ", key, value.get<std::uint32_t>())
                           : fmt::format("{} {} ", key, word(value));
    }
    return out;
}

}  // namespace

void print_json(const Json& value, const OutputOptions& options) {
    fmt::print("{}\n",
               value.dump(options.pretty ? 4 : -1, ' ', false, Json::error_handler_t::replace));
}

void print_records(const Json& records, const OutputOptions& options) {
    if (options.json) return print_json(records, options);
    for (const Json& record : records) fmt::print("{}\n", line(record));
}

}  // namespace feroce::cli
