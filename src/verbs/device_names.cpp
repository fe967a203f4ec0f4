#include "verbs/device_names.hpp"

#include <infiniband/verbs.h>
#include <net/if.h>

#include <algorithm>

namespace feroce::verbs {
namespace {

bool is_plain(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
    });
}

}  // namespace

std::optional<DeviceNames> DeviceNames::parse(std::string_view pattern) {
    // The longest interface, or more digits than any number has, and the zero byte.
    if (pattern.size() + IFNAMSIZ > IBV_SYSFS_NAME_MAX) return std::nullopt;
    const std::size_t at = pattern.find('%');
    if (at == pattern.npos || at + 1 == pattern.size()) return std::nullopt;
    const char kind = pattern[at + 1];
    DeviceNames out;
    out.before_ = pattern.substr(0, at);
    out.behind_ = pattern.substr(at + 2);
    out.numbered_ = kind == 'd';
    if ((kind != 'd' && kind != 's') || !is_plain(out.before_) || !is_plain(out.behind_))
        return std::nullopt;
    return out;
}

std::string DeviceNames::name_of(std::string_view interface, int number) const {
    return before_ + (numbered_ ? std::to_string(number) : std::string(interface)) + behind_;
}

}  // namespace feroce::verbs
