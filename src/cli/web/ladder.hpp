// The packets of a capture, connection by connection, for a picture with one line an end
// (flows.hpp tells which belong together).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/gid.hpp"
#include "cli/output.hpp"

namespace feroce::cli {

inline constexpr std::size_t kLadderPacketsMax = 400;  // Of one connection.
inline constexpr std::size_t kLaddersMax = 50;
// Larger captures are cut: a page shows a beginning, `feroce trace` all.
inline constexpr std::size_t kCapturePacketsMax = 50'000;
inline constexpr std::size_t kCaptureBytesMax = 256UL << 20;

struct LadderPacket {
    double seconds = 0;  // Since the first one.
    Gid source;
    Gid destination;
    std::uint32_t qpn = 0;  // That gets it.
    std::uint32_t psn = 0;
    bool answers = false;
    std::uint32_t from_qpn = 0;  // That sent it, if it says so: only datagrams do.
    std::string text;
    std::string remark;
};

// {ladders: [{left: {address, qpn}, right: {address, qpn},
//             packets: [{seconds, to_right, psn, text, remark}], more}],
//  more, unpaired}, those with most packets first. A qpn is 0 if no packet goes there.
// `unpaired`: so many packets are of flows whose other direction was not looked for.
Json ladders_of(const std::vector<LadderPacket>& packets);

// Of a capture, and `cut`: what of it was not read, as a sentence; empty if all was. Throws
// UsageError if the file cannot be read.
Json ladders_in(const std::string& path, std::size_t bytes_max = kCaptureBytesMax,
                std::size_t packets_max = kCapturePacketsMax);

}  // namespace feroce::cli
