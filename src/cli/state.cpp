#include "cli/state.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iterator>

namespace feroce::cli {
namespace {

// A process answers in well under a millisecond unless it is stopped.
constexpr std::chrono::milliseconds kPatience{1000};

}  // namespace

std::vector<process::StateReading> all_processes() {
    return process::read_state_pages(::geteuid(), kPatience);
}

std::vector<process::StateSnapshot> live_processes() {
    std::vector<process::StateSnapshot> out;
    for (process::StateReading& reading : all_processes()) {
        if (!reading.alive) continue;
        const process::StateSnapshot& s = reading.snapshot;
        if (!reading.fresh)
            fmt::print(stderr, "feroce: process {} ({}) does not answer; what it showed last:\n",
                       s.pid, s.command);
        if (s.qps_left_out > 0)
            fmt::print(stderr, "feroce: process {} ({}) has {} more queue pairs than it shows\n",
                       s.pid, s.command, s.qps_left_out);
        out.push_back(std::move(reading.snapshot));
    }
    return out;
}

std::string device_of(const process::StateSnapshot& process, const process::StateQp& qp) {
    return qp.device < process.devices.size() ? process.devices[qp.device] : "";
}

const char* type_name(std::uint8_t type) {
    switch (type) {
        case 2:
            return "RC";
        case 3:
            return "UC";
        case 4:
            return "UD";
        case 9:
            return "XRC_INI";
        case 10:
            return "XRC_TGT";
        default:
            return "UNKNOWN";
    }
}

const char* state_name(std::uint8_t state) {
    constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return state < std::size(kNames) ? kNames[state] : "UNKNOWN";
}

}  // namespace feroce::cli
