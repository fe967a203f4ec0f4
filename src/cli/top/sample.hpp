// What `feroce top` shows: the state of processes, queue pairs, sessions and disks at a moment,
// with rates since the moment before. A rate is missing where there is nothing to compare with.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/devices.hpp"
#include "cli/export_door.hpp"
#include "cli/session_doors.hpp"
#include "cli/top/meter.hpp"
#include "process/state_page.hpp"

namespace feroce::cli {

using Rate = std::optional<double>;  // A second.

// What made a sender send packets again, in the order of TopTraffic::resent.
inline constexpr std::array<const char*, 5> kResentCauses{"timeout", "probe", "nak_seq", "rnr",
                                                          "lost_response"};

struct TopTraffic {
    Rate sent_bytes, received_bytes, sent_packets, received_packets, resent_packets,
        dropped_packets;
    std::array<std::uint64_t, kResentCauses.size()> resent{};  // Packets, since the process began.
    std::uint64_t errors = 0;  // Work requests that failed, likewise; flushed ones are no failures.

    TopTraffic& operator+=(const TopTraffic& other);
};

struct TopProcess {
    std::uint32_t pid = 0;
    std::string command;
    std::string device;   // Its first.
    bool silent = false;  // It does not answer: what it showed last.
    std::size_t queue_pairs = 0;
    std::uint64_t outstanding = 0;
    std::uint64_t rtt_ns = 0;  // The longest of its queue pairs'; 0: none is known.
    TopTraffic traffic;
    std::string last_error;
};

struct TopDevice {
    std::string name;
    bool up = false;
    std::size_t processes = 0;
    std::size_t queue_pairs = 0;
    std::uint64_t outstanding = 0;
    TopTraffic traffic = {};  // Of processes whose first device it is, which live.
};

struct TopQp {
    std::uint32_t pid = 0;
    std::string command;
    std::string device;
    process::StateQp state;
    Rate posted, sent_packets, received_packets;
    std::string last_error;
};

struct TopSession {
    Json record;  // As the program describes it.
    Rate requests, read_bytes, written_bytes;
    std::string last_error;  // Of a path.
};

struct TopDisk {
    ServedDisk disk;
    Rate reads, writes, read_bytes, written_bytes;
};

struct TopSample {
    std::vector<TopDevice> devices;
    std::vector<TopProcess> processes;
    std::vector<TopQp> qps;
    std::vector<TopSession> sessions;
    std::vector<TopDisk> disks;
    std::size_t qps_untold = 0;  // There are more, but their processes could not tell of them.
};

// All that is seen in one look.
struct TopLook {
    std::chrono::nanoseconds at{};  // Of a clock that never goes back.
    std::vector<DeviceInfo> devices;
    std::vector<process::StateReading> processes;
    std::vector<LiveSession> sessions;
    std::vector<ServedDisk> disks;
};

class Sampler {
public:
    TopSample take(const TopLook& look);

private:
    void take_process(const process::StateReading& reading, TopSample& out);
    void take_qps(const process::StateReading& reading, TopSample& out);
    void take_session(const LiveSession& session, TopSample& out);
    void take_disks(const TopLook& look, TopSample& out);

    Meter<std::pair<std::uint32_t, std::string>, 6> processes_;  // By pid and command.
    Meter<std::pair<std::uint32_t, std::uint32_t>, 3> qps_;      // By pid and QPN.
    Meter<std::string, 1> sessions_;                             // By door and name.
    Meter<std::string, 2> paths_;                                // With the path's number.
    Meter<std::pair<std::uint32_t, std::string>, 4> disks_;      // By pid and name.
};

}  // namespace feroce::cli
