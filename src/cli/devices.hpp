// The devices that programs of this user would see, through the public ABI; what the ABI tells only
// of an open device (addresses, state) comes from the network interface, because opening one takes
// a slot of the shared UDP port.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/gid.hpp"

namespace feroce::cli {

struct DeviceInfo {
    std::string name;        // feroce_eth0
    std::string verbs_name;  // uverbs0
    std::string interface;   // eth0
    std::uint32_t interface_index = 0;
    std::uint64_t guid = 0;  // Host order.
    std::uint32_t speed_mbps = 10'000;
    bool up = false;
    std::vector<Gid> gids;  // In the order of GID indexes.
};

std::vector<DeviceInfo> list_devices();
// The same for commands that only list them; throws UsageError if FEROCE_DEVICES names none.
std::vector<DeviceInfo> list_named_devices();

// For commands that only look: settings that are meant for programs. Such a command captures
// nothing, and must not empty the file of a program that did; its own calls meet no faults.
void forget_settings_of_programs();

// True if feroce_lo is left out of them, because there are others and nothing names it.
bool hides_loopback(const std::vector<DeviceInfo>& devices);

std::string guid_text(std::uint64_t guid);  // 0011:22ff:fe33:4455

}  // namespace feroce::cli
