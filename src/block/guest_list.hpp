// The clients that may open an export: names of sessions and networks of addresses.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace feroce::block {

class GuestList {
public:
    static Result<GuestList> parse(const std::vector<std::string>& names,
                                   const std::vector<std::string>& networks);

    bool admits_name(std::string_view name) const;
    bool admits_address(std::string_view address) const;  // Numeric; IPv6 with brackets or without.

private:
    struct Network {
        int family = 0;
        std::array<std::uint8_t, 16> bytes{};
        unsigned bits = 0;
    };
    static bool read_address(std::string_view text, Network& out);

    std::vector<std::string> names_;
    std::vector<Network> networks_;
};

}  // namespace feroce::block
