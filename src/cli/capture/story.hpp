// The story of a capture: packets in, findings out. Queue pairs are known only from packets, so
// which two are connected is learnt from the connection manager's messages or from answers, which
// have the PSN of a request that went the other way. What a capture cannot tell is said to be so.
//
// Memory is bounded: of more queue pairs than there is room for, those that were silent longest are
// judged and forgotten, and the story says how many.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/gid.hpp"
#include "base/time.hpp"
#include "cli/capture/exchanges.hpp"
#include "cli/capture/requests.hpp"
#include "cli/capture/twins.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"

namespace feroce::cli {

struct CaptureFinding {
    // Doubt: a failure, unless what came after the capture mended it. Notice: it did no lasting
    // harm.
    enum class Kind : std::uint8_t { Failure, Doubt, Notice };
    Kind kind = Kind::Failure;
    Duration time{};  // Since the first packet.
    Gid source;       // The end that is spoken of: its address and queue pair, 0 if not known.
    std::uint32_t qpn = 0;
    Gid destination;  // Its peer.
    std::uint32_t peer_qpn = 0;
    std::uint32_t psn = 0;
    std::string sentence;
    std::string because;  // What more can be said, of the peer; may be empty.
};

// One direction of a connection: all packets from one address to one queue pair of another.
struct Flow {
    Gid source;
    Gid destination;
    std::uint32_t qpn = 0;  // That gets them.
    wire::Service service = wire::Service::Rc;
    Duration first{};
    Duration last{};
    std::uint64_t packets = 0;
    std::uint32_t mtu = 0;       // Bytes; 0: not known.
    std::uint32_t from_qpn = 0;  // That sends them; 0: not known.
    // Told by the connection manager, if at all:
    std::optional<Psn> start;  // With which the sender is to begin.
    std::optional<std::uint8_t> rnr_retries;
    std::optional<std::uint8_t> reads_max;    // That the receiver takes at once.
    std::uint32_t unmatched = 0;              // Answers whose requests were looked for in vain.
    std::vector<std::uint32_t> invalidated;   // Keys that the sender invalidated, the last few.
    std::optional<std::uint32_t> lost_of_uc;  // Packets that PSNs of UC leave out.
    Psn next_of_uc;
    SeenRequests requests;
};

// Packets from one address to another.
struct Road {
    std::uint64_t packets = 0;
    std::uint64_t checked = 0;  // Whose ICRC could be.
    std::uint64_t bad = 0;      // And is wrong.
    std::uint64_t bad_answered = 0;
    std::uint64_t marked = 0;  // By a congested switch.
    std::uint64_t cnps = 0;
};

struct StoryCounts {
    std::uint64_t packets = 0;  // Of RoCE, each once.
    std::uint64_t twins = 0;    // That are there twice.
    std::uint64_t malformed = 0;
    std::uint64_t cut = 0;      // Of which only the beginning is there.
    std::uint64_t joined = 0;   // Datagrams that held several packets.
    std::uint64_t unsplit = 0;  // Of these, which could not be taken apart.
    std::uint64_t missing = 0;  // Packets that PSNs leave out and that nobody sent again.
    std::uint64_t connections = 0;
    std::uint64_t half = 0;        // Queue pairs whose other end was not found.
    std::uint64_t unanswered = 0;  // Of these, that got requests, and nothing answered.
    std::uint64_t datagram_qps = 0;
    std::uint64_t opened = 0;  // By the connection manager, as the next.
    std::uint64_t closed = 0;
    std::uint64_t forgotten = 0;  // Queue pairs and exchanges that there was no room for.
    std::uint64_t findings_left_out = 0;
};

class CaptureStory {
public:
    static constexpr std::size_t kFlowsMax = 8'192;
    static constexpr std::size_t kFindingsMax = 256;
    explicit CaptureStory(std::size_t flows_max = kFlowsMax);
    CaptureStory(const CaptureStory&) = delete;  // Its parts call it back.
    CaptureStory& operator=(const CaptureStory&) = delete;

    // A frame with or without RoCE: how long the capture goes on matters too.
    void on_time(Duration since_epoch);
    // `captured` bytes of the UDP payload are in the capture.
    void on_datagram(Duration since_epoch, const wire::RoceDatagram& datagram,
                     std::size_t captured);

    // Both once, after the last packet.
    std::vector<CaptureFinding> finish();
    const StoryCounts& counts() const { return counts_; }

private:
    using Key = std::tuple<Gid, Gid, std::uint32_t>;
    using Flows = std::list<Flow>;  // The one that was used last comes first.

    void on_packet(Duration time, const wire::RoceDatagram& datagram, std::size_t captured,
                   bool checked);
    bool split(Duration time, const wire::RoceDatagram& datagram);
    void on_management(Duration time, const wire::RoceDatagram& datagram,
                       const wire::Packet& packet);
    void on_reliable(Duration time, Flow& flow, const wire::Packet& packet, bool counts);
    void on_answer(Duration time, Flow& flow, const wire::Packet& packet);
    void connect(const Exchange& exchange);
    Road& road_of(const wire::RoceDatagram& datagram);
    Flow& flow_of(const Gid& source, const Gid& destination, std::uint32_t qpn, Duration time);
    Flow* find_flow(const Gid& source, const Gid& destination, std::uint32_t qpn);
    Flow* requests_of(Flow& answers, Psn psn);
    void join(Flow& requests, Flow& answers);
    void judge(const Flow& flow);
    void judge(const Exchange& exchange);
    void add(CaptureFinding finding);

    Twins twins_;
    Exchanges exchanges_;
    Flows flows_;
    std::map<Key, Flows::iterator> index_;
    std::map<std::pair<Gid, Gid>, Road> roads_;
    std::size_t flows_max_;
    std::optional<Duration> begun_;
    Duration end_{};
    std::uint32_t searches_ = 0;  // For the length of joined packets; there is a limit.
    StoryCounts counts_;
    std::vector<CaptureFinding> findings_;
    Road spare_road_;  // For addresses that there is no room for.
};

}  // namespace feroce::cli
