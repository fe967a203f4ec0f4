// What devices are called. Some programs want names that they know, such as mlx5_0.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace feroce::verbs {

class DeviceNames {
public:
    // feroce_INTERFACE.
    DeviceNames() = default;
    // A pattern of letters, digits, '_' and '-' with one %d, the device's number, or one %s, its
    // interface. Empty if it is something else or too long for a device.
    static std::optional<DeviceNames> parse(std::string_view pattern);

    std::string name_of(std::string_view interface, int number) const;

private:
    std::string before_ = "feroce_";
    std::string behind_;
    bool numbered_ = false;
};

}  // namespace feroce::verbs
