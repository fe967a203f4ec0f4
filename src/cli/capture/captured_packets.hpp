// The packets of a capture, each once.
#pragma once

#include <optional>

#include "base/time.hpp"
#include "cli/capture/capture_file.hpp"
#include "cli/capture/twins.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"

namespace feroce::cli {

struct CapturedPacket {
    Duration since_first{};
    wire::RoceDatagram datagram;  // This and the packet live until the next one is read.
    wire::Packet packet;
};

class CapturedPackets {
public:
    explicit CapturedPackets(CaptureFile& file) : file_(file) {}

    std::optional<CapturedPacket> next();

private:
    CaptureFile& file_;
    Twins twins_;
    std::optional<Duration> first_;
};

}  // namespace feroce::cli
