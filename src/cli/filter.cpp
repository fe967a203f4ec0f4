#include "cli/filter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace feroce::cli {
namespace {

bool equal(const Json& value, const std::string& text) {
    if (value.is_string()) {
        const std::string own = value.get<std::string>();
        return own.size() == text.size() &&
               std::equal(own.begin(), own.end(), text.begin(),
                          [](unsigned char a, unsigned char b) {
                              return std::tolower(a) == std::tolower(b);
                          });
    }
    if (value.is_number_unsigned() && text.substr(0, 2) == "0x") {
        char* end = nullptr;
        const unsigned long number = std::strtoul(text.c_str(), &end, 16);
        return *end == '\0' && value.get<unsigned long>() == number;
    }
    return value.dump() == text;
}

std::vector<std::string> split_commas(const std::string& text) {
    std::vector<std::string> out;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, ',');) out.push_back(part);
    return out;
}

}  // namespace

Filter::Filter(const std::vector<std::string>& words, const std::vector<std::string>& objects,
               bool takes_link) {
    auto at = words.begin();
    const auto next = [&](const std::string& what) {
        if (++at == words.end()) throw UsageError(what);
        return *at;
    };
    if (at != words.end() && (*at == "show" || *at == "list")) ++at;
    if (at != words.end() && std::find(objects.begin(), objects.end(), *at) != objects.end())
        object_ = *at++;
    for (; at != words.end(); ++at) {
        if (takes_link && *at == "link") {
            take_device(next("link wants a device: link feroce_lo/1"));
        } else if (object_.empty() && device_.empty() && (words.end() - at) % 2 == 1) {
            take_device(*at);  // Filters come in pairs; a word too many is the device.
        } else {
            const std::string& key = *at;
            values_[key] = split_commas(next(fmt::format("the filter {} wants a value", key)));
        }
    }
}

void Filter::take_device(const std::string& word) {
    const std::size_t slash = word.find('/');
    device_ = word.substr(0, slash);
    const std::string port = slash == std::string::npos ? "1" : word.substr(slash + 1);
    if (port != "1" && port != "-")
        throw UsageError(fmt::format("{} has one port, number 1", device_));
}

void Filter::check_device(const std::vector<DeviceInfo>& devices) const {
    const auto same = [this](const DeviceInfo& d) { return d.name == device_; };
    if (device_.empty() || std::any_of(devices.begin(), devices.end(), same)) return;
    throw UsageError(fmt::format("there is no device {}; `feroce dev` lists them", device_));
}

bool Filter::wants(const Json& record) const {
    for (const auto& [key, values] : values_) {
        if (!record.contains(key)) return false;
        const Json& value = record[key];
        const auto same = [&value](const std::string& text) { return equal(value, text); };
        if (!std::any_of(values.begin(), values.end(), same)) return false;
    }
    return true;
}

}  // namespace feroce::cli
