#include "cli/capture/story.hpp"

#include <algorithm>
#include <chrono>

#include "cli/capture/verdicts.hpp"
#include "wire/icrc.hpp"

namespace feroce::cli {
namespace {

constexpr std::size_t kRoadsMax = 4'096;
constexpr std::size_t kInvalidatedMax = 16;
constexpr std::uint32_t kSearchesMax = 1'000;
constexpr std::uint32_t kSearchedSingly = 64;  // Answers whose requests are looked for one by one.
constexpr std::size_t kPayloadMax = 4'096;
constexpr std::size_t kPacketMax = kPayloadMax + wire::Bth::kSize + wire::kExtensionMax + 4;
constexpr Duration kLongest = std::chrono::hours(24 * 366);

// The path MTU, if the packet is as long as one must be that others follow.
std::uint32_t mtu_shown_by(const wire::Packet& packet) {
    if (packet.info->ends_message()) return 0;
    const std::size_t size = packet.payload.size();
    const bool possible = size >= 256 && size <= kPayloadMax && (size & (size - 1)) == 0;
    return possible ? static_cast<std::uint32_t>(size) : 0;
}

bool is_marked(const wire::RoceDatagram& datagram) {
    return (datagram.traffic_class & 3) == 3;
}

// How long the packets are that were put together into one datagram; 0 if they are not found.
std::size_t joined_size(const wire::RoceDatagram& datagram, std::uint32_t& searches) {
    wire::RoceDatagram first = datagram;
    const std::size_t size = datagram.udp_payload.size();
    const auto fits = [&](std::size_t length) {
        first.udp_payload = datagram.udp_payload.first(length);
        return wire::verify(first);
    };
    if (size < 16) return 0;
    const auto opcode = static_cast<wire::Opcode>(byte_at(datagram.udp_payload, 0));
    for (std::size_t mtu = 256; mtu <= kPayloadMax; mtu *= 2) {
        const std::size_t length = wire::packet_size(opcode, mtu);
        if (length < size && fits(length)) return length;
    }
    if (searches == kSearchesMax) return 0;
    ++searches;
    for (std::size_t length = 16; length < std::min(size, kPacketMax); length += 4)
        if (fits(length)) return length;
    return 0;
}

}  // namespace

CaptureStory::CaptureStory(std::size_t flows_max)
    : exchanges_([this](const Exchange& exchange) { judge(exchange); }), flows_max_(flows_max) {}

void CaptureStory::on_time(Duration since_epoch) {
    if (!begun_) begun_ = since_epoch;
    // Clocks may jump, and garbage may say anything.
    const Duration passed = std::clamp(since_epoch - *begun_, Duration{}, kLongest);
    end_ = std::max(end_, passed);
}

Road& CaptureStory::road_of(const wire::RoceDatagram& datagram) {
    const std::pair key(datagram.address.source, datagram.address.destination);
    const auto at = roads_.find(key);
    if (at != roads_.end()) return at->second;
    return roads_.size() < kRoadsMax ? roads_[key] : spare_road_;
}

void CaptureStory::on_datagram(Duration since_epoch, const wire::RoceDatagram& datagram,
                               std::size_t captured) {
    on_time(since_epoch);
    const bool whole = captured >= datagram.udp_payload.size();
    if (!whole) ++counts_.cut;
    if (whole && twins_.is_second_sight(datagram)) {
        ++counts_.twins;
        return;
    }
    if (whole && !wire::verify(datagram) && split(end_, datagram)) return;
    if (datagram.udp_payload.size() > kPacketMax) {
        ++counts_.unsplit;
        return;
    }
    on_packet(end_, datagram, captured, whole);
}

// Taken before the sender's hardware cut a run of packets apart, or after the receiver's joined it.
bool CaptureStory::split(Duration time, const wire::RoceDatagram& datagram) {
    const std::size_t length = joined_size(datagram, searches_);
    if (length == 0) return false;
    ++counts_.joined;
    wire::RoceDatagram one = datagram;
    for (ByteView rest = datagram.udp_payload; !rest.empty();
         rest = rest.subspan(one.udp_payload.size())) {
        one.udp_payload = rest.first(std::min(length, rest.size()));
        on_packet(time, one, one.udp_payload.size(), true);
        ++one.ipv4_id;
    }
    return true;
}

void CaptureStory::on_packet(Duration time, const wire::RoceDatagram& datagram,
                             std::size_t captured, bool checked) {
    wire::Packet packet;
    if (wire::parse_packet(datagram.udp_payload, packet) != wire::ParseError::None ||
        captured < wire::header_size(packet.bth.opcode)) {
        ++counts_.malformed;
        return;
    }
    ++counts_.packets;
    Road& road = road_of(datagram);
    const bool good = !checked || wire::verify(datagram);
    ++road.packets;
    if (checked) ++road.checked;
    if (!good) ++road.bad;
    if (is_marked(datagram)) ++road.marked;
    if (packet.info->service == wire::Service::Cnp) {
        ++road.cnps;
        return;
    }
    // Receivers drop it, unless the capture itself shows no right one.
    const bool counts = good || road.bad == road.checked;
    const bool manages =
        packet.info->service == wire::Service::Ud && packet.bth.destination == kGeneralServicesQpn;
    if (manages) {
        if (counts && captured == datagram.udp_payload.size())
            on_management(time, datagram, packet);
        return;
    }
    Flow& flow = flow_of(datagram.address.source, datagram.address.destination,
                         packet.bth.destination.raw, time);
    if (flow.packets++ == 0) {
        flow.service = packet.info->service;
        if (flow.service == wire::Service::Ud) ++counts_.datagram_qps;
    }
    flow.last = time;
    if (packet.info->service == wire::Service::Ud || packet.info->service != flow.service) return;
    if (const std::uint32_t mtu = mtu_shown_by(packet); mtu != 0) flow.mtu = mtu;
    on_reliable(time, flow, packet, counts);
}

void CaptureStory::on_reliable(Duration time, Flow& flow, const wire::Packet& packet, bool counts) {
    const Psn psn = packet.bth.psn;
    if (flow.service == wire::Service::Uc) {
        const std::int32_t gap = flow.lost_of_uc ? distance(flow.next_of_uc, psn) : 0;
        const std::uint32_t before = flow.lost_of_uc.value_or(0);
        flow.lost_of_uc = before + static_cast<std::uint32_t>(std::max(gap, 0));
        if (gap >= 0) flow.next_of_uc = psn + 1;
        return;
    }
    if (wire::is_answer(packet.info->verb)) {
        if (counts) on_answer(time, flow, packet);
        return;
    }
    if (packet.info->has(wire::Header::Ieth)) {
        if (flow.invalidated.size() == kInvalidatedMax)
            flow.invalidated.erase(flow.invalidated.begin());
        flow.invalidated.push_back(packet.invalidate().raw);
    }
    std::uint32_t mtu = flow.mtu;
    if (mtu == 0 && flow.from_qpn != 0)
        if (const Flow* back = find_flow(flow.destination, flow.source, flow.from_qpn))
            mtu = back->mtu;
    flow.requests.on_request(time, packet, mtu);
}

void CaptureStory::on_answer(Duration time, Flow& flow, const wire::Packet& packet) {
    Flow* requests = requests_of(flow, packet.bth.psn);
    if (requests == nullptr) return;
    requests->requests.on_answer(time, packet);
    const auto road = roads_.find({requests->source, requests->destination});
    if (road != roads_.end() && road->second.bad > 0) ++road->second.bad_answered;
}

// Whose PSNs an answer can have. Two that could be it are none.
Flow* CaptureStory::requests_of(Flow& answers, Psn psn) {
    if (answers.from_qpn != 0)
        return find_flow(answers.destination, answers.source, answers.from_qpn);
    if (answers.unmatched++ >= kSearchedSingly && answers.unmatched % kSearchedSingly != 0)
        return nullptr;
    Flow* fitting = nullptr;
    Flow* only = nullptr;
    std::size_t fits = 0, all = 0;
    for (auto at = index_.lower_bound({answers.destination, answers.source, 0});
         at != index_.end() && std::get<0>(at->first) == answers.destination &&
         std::get<1>(at->first) == answers.source;
         ++at) {
        Flow& other = *at->second;
        if (!other.requests.any() || other.from_qpn != 0 || &other == &answers) continue;
        ++all;
        only = &other;
        if (!other.requests.holds(psn)) continue;
        ++fits;
        fitting = &other;
    }
    // A queue pair may be connected to itself.
    if (fits == 0 && answers.requests.holds(psn) && answers.source == answers.destination) {
        fitting = &answers;
        fits = 1;
    }
    if (fits == 0 && all == 1 && !answers.requests.any()) {
        fitting = only;
        fits = 1;
    }
    if (fits != 1) return nullptr;
    join(*fitting, answers);
    return fitting;
}

void CaptureStory::join(Flow& requests, Flow& answers) {
    requests.from_qpn = answers.qpn;
    answers.from_qpn = requests.qpn;
    ++counts_.connections;
}

void CaptureStory::on_management(Duration time, const wire::RoceDatagram& datagram,
                                 const wire::Packet& packet) {
    const auto mad = wire::parse_cm_mad(packet.payload);
    if (!mad) return;
    const Exchange* done =
        exchanges_.on_message(time, datagram.address.source, datagram.address.destination, *mad);
    if (done != nullptr) connect(*done);
}

void CaptureStory::connect(const Exchange& e) {
    ++counts_.opened;
    ++counts_.connections;
    const auto make = [&](const Gid& source, const Gid& destination, std::uint32_t from,
                          std::uint32_t to) -> Flow& {
        const auto old = index_.find({source, destination, to});
        if (old != index_.end()) {  // The number was another connection's before.
            judge(*old->second);
            flows_.erase(old->second);
            index_.erase(old);
        }
        Flow& flow = flow_of(source, destination, to, end_);
        flow.from_qpn = from;
        flow.mtu = e.mtu;
        return flow;
    };
    Flow& there = make(e.caller, e.callee, e.caller_qpn, e.callee_qpn);
    there.start = e.callee_psn;
    there.rnr_retries = e.rnr_retries_of_caller;
    there.reads_max = e.callee_resources;
    if (e.caller == e.callee && e.caller_qpn == e.callee_qpn) return;
    Flow& back = make(e.callee, e.caller, e.callee_qpn, e.caller_qpn);
    back.start = e.caller_psn;
    back.rnr_retries = e.rnr_retries_of_callee;
    back.reads_max = e.responder_resources;
}

Flow* CaptureStory::find_flow(const Gid& source, const Gid& destination, std::uint32_t qpn) {
    const auto at = index_.find({source, destination, qpn});
    return at == index_.end() ? nullptr : &*at->second;
}

Flow& CaptureStory::flow_of(const Gid& source, const Gid& destination, std::uint32_t qpn,
                            Duration time) {
    const Key key{source, destination, qpn};
    const auto known = index_.find(key);
    if (known != index_.end()) {
        flows_.splice(flows_.begin(), flows_, known->second);
        return flows_.front();
    }
    if (flows_.size() >= flows_max_) {
        const Flow& oldest = flows_.back();
        judge(oldest);
        ++counts_.forgotten;
        index_.erase({oldest.source, oldest.destination, oldest.qpn});
        flows_.pop_back();
    }
    flows_.emplace_front();
    Flow& made = flows_.front();
    made.source = source;
    made.destination = destination;
    made.qpn = qpn;
    made.first = time;
    index_[key] = flows_.begin();
    return made;
}

void CaptureStory::judge(const Flow& flow) {
    const bool connected = flow.packets > 0 && flow.service != wire::Service::Ud;
    if (connected && flow.from_qpn == 0) ++counts_.half;
    if (flow.requests.any() && flow.requests.answers == 0 && flow.requests.repeated == 0)
        ++counts_.unanswered;
    if (flow.requests.repeated == 0) counts_.missing += flow.requests.missing;
    for (CaptureFinding& finding : verdicts(flow, end_)) add(std::move(finding));
}

void CaptureStory::judge(const Exchange& exchange) {
    if (exchange.dreqs > 0) ++counts_.closed;
    if (auto finding = verdict(exchange, end_)) add(std::move(*finding));
}

void CaptureStory::add(CaptureFinding finding) {
    if (findings_.size() < kFindingsMax) {
        findings_.push_back(std::move(finding));
        return;
    }
    ++counts_.findings_left_out;
    if (finding.kind == CaptureFinding::Kind::Notice) return;
    // A failure is worth more than what did no harm.
    const auto notice = std::find_if(
        findings_.begin(), findings_.end(),
        [](const CaptureFinding& f) { return f.kind == CaptureFinding::Kind::Notice; });
    if (notice != findings_.end()) *notice = std::move(finding);
}

std::vector<CaptureFinding> CaptureStory::finish() {
    exchanges_.finish();
    for (auto flow = flows_.rbegin(); flow != flows_.rend(); ++flow) judge(*flow);
    for (const auto& [ends, road] : roads_)
        for (CaptureFinding& finding : verdicts(ends.first, ends.second, road))
            add(std::move(finding));
    flows_.clear();
    index_.clear();
    counts_.forgotten += exchanges_.forgotten();
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const CaptureFinding& a, const CaptureFinding& b) {
                         return std::tuple(a.kind, a.time) < std::tuple(b.kind, b.time);
                     });
    return std::move(findings_);
}

}  // namespace feroce::cli
