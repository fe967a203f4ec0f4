// See export_config.hpp.
#include "cli/export_config.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>

#include "cli/output.hpp"

namespace feroce::cli {
namespace {

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The part before the sign; the text goes on behind it, or is empty.
std::string_view cut(std::string_view& text, char sign) {
    const auto at = text.find(sign);
    const std::string_view before = text.substr(0, at);
    text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
    return trimmed(before);
}

std::uint64_t number(std::string_view text, std::uint64_t largest, std::string_view what) {
    std::uint64_t value = 0;
    const auto read = std::from_chars(text.begin(), text.end(), value);
    if (read.ec != std::errc() || read.ptr != text.end() || value > largest)
        throw UsageError(fmt::format("{} must be a number up to {}, not {}", what, largest, text));
    return value;
}

void set_option(ExportSpec& spec, std::string_view option) {
    std::string_view value = option;
    const std::string_view key = cut(value, '=');
    if (key == "ro")
        spec.read_only = true;
    else if (key == "buffered")
        spec.direct = false;
    else if (key == "session" && !value.empty())
        spec.sessions.emplace_back(trimmed(value));
    else if (key == "state" && !value.empty())
        spec.state = trimmed(value);
    else if (key == "from" && !value.empty())
        spec.addresses.emplace_back(trimmed(value));
    else
        throw UsageError(
            fmt::format("the export {} has an option {}; there are ro, buffered, session=NAME, "
                        "from=NETWORK and "
                        "state=FOLDER",
                        spec.name, option));
}

void set_place(ExportSpec& spec, std::string_view place) {
    for (const auto& [prefix, kind] :
         {std::pair{std::string_view("memory:"), ExportSpec::Kind::Memory},
          std::pair{std::string_view("null:"), ExportSpec::Kind::Null}}) {
        if (!place.starts_with(prefix)) continue;
        spec.kind = kind;
        spec.size = parse_size(place.substr(prefix.size()));
        return;
    }
    spec.path = place;
}

void set_line(std::string_view line, ExportConfig& config) {
    constexpr std::string_view kExport = "export ";
    if (line.starts_with(kExport)) {
        config.exports.push_back(parse_export(line.substr(kExport.size())));
        return;
    }
    std::string_view value = line;
    const std::string_view key = cut(value, '=');
    value = trimmed(value);
    if (key == "address")
        config.address = value;
    else if (key == "port")
        config.port = static_cast<std::uint16_t>(number(value, 65535, key));
    else if (key == "queue_depth")
        config.queue_depth = static_cast<std::uint16_t>(number(value, 65535, key));
    else if (key == "chunk_size")
        config.chunk_size = static_cast<std::uint32_t>(number(value, 1 << 27, key));
    else
        throw UsageError(fmt::format("there is no setting {}", key));
}

}  // namespace

std::uint64_t parse_size(std::string_view text) {
    constexpr std::string_view kUnits = "KMGT";
    std::string_view digits = text;
    std::uint64_t unit = 1;
    if (!text.empty()) {
        const auto at = kUnits.find(text.back());
        if (at != std::string_view::npos) {
            unit = std::uint64_t{1024} << 10 * at;
            digits.remove_suffix(1);
        }
    }
    const std::uint64_t size = number(digits, UINT64_MAX / unit, "a size") * unit;
    if (size == 0 || size % 512 != 0)
        throw UsageError(fmt::format("a disk has whole sectors of 512 bytes, not {}", text));
    return size;
}

ExportSpec parse_export(std::string_view text) {
    ExportSpec spec;
    std::string_view rest = text;
    spec.name = cut(rest, '=');
    const std::string_view place = cut(rest, ',');
    if (spec.name.empty() || place.empty())
        throw UsageError(fmt::format(
            "{} is no export; write NAME=PATH, NAME=memory:SIZE or NAME=null:SIZE", text));
    set_place(spec, place);
    while (!rest.empty()) set_option(spec, cut(rest, ','));
    return spec;
}

void read_export_file(const std::string& path, ExportConfig& config) {
    std::ifstream in(path);
    if (!in) throw UsageError(fmt::format("the file {} cannot be read", path));
    std::string line;
    for (int row = 1; std::getline(in, line); ++row) {
        std::string_view text = line;
        text = trimmed(cut(text, '#'));
        if (text.empty()) continue;
        try {
            set_line(text, config);
        } catch (const UsageError& error) {
            throw UsageError(fmt::format("{} line {}: {}", path, row, error.what()));
        }
    }
}

}  // namespace feroce::cli
