// A capture as a trace for Perfetto: a group of tracks for each queue pair, with its work requests
// from first packet to answer, the packets it sent and received, and what was sent again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "cli/flows.hpp"
#include "cli/perfetto/trace_file.hpp"
#include "cli/perfetto/work_requests.hpp"
#include "cli/remarks.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"

namespace feroce::cli {

class CaptureTrace {
public:
    // Of the whole file, which is read twice: first for which queue pairs are connected.
    CaptureTrace(std::string capture, TraceFile& file)
        : capture_(std::move(capture)), file_(file) {}

    // False if the capture is damaged: the rest of it is left out.
    bool write();

    std::size_t packets() const { return packets_; }
    std::size_t requests() const;
    std::size_t queue_pairs() const { return groups_.size(); }
    // Packets of more flows or queue pairs than there is room for.
    std::uint64_t left_out() const { return left_out_; }

private:
    // An address and a queue pair number. 0: its own is unknown, so it has that of its peer.
    using End = std::tuple<Gid, std::uint32_t, PacketFlow>;

    static constexpr std::size_t kGroupsMax = 2 * FlowPairs::kFlowsMax;

    void learn();
    End sender_of(const PacketFlow& flow, const wire::Packet& packet) const;
    std::optional<std::uint32_t> group_of(const End& end);
    WorkRequests& requests_of(const PacketFlow& flow, std::uint32_t group);
    void add(double us, const wire::RoceDatagram& datagram, const wire::Packet& packet);

    std::string capture_;
    TraceFile& file_;
    Remarks remarks_;
    FlowPairs pairs_;
    std::map<PacketFlow, PacketFlow> other_way_;
    std::map<End, std::uint32_t> groups_;
    std::map<PacketFlow, std::unique_ptr<WorkRequests>> requests_;
    std::uint64_t next_id_ = 1;
    std::size_t packets_ = 0;
    std::uint64_t left_out_ = 0;
    double last_us_ = 0;
};

}  // namespace feroce::cli
