#include "cli/capture/exchanges.hpp"

#include <fmt/format.h>

#include "wire/cm_path_messages.hpp"
#include "wire/cma.hpp"

namespace feroce::cli {
namespace {

// What is behind rdma_cm's header in the private data, or listens at such a port by custom.
const char* program_of(ByteView rest, std::uint16_t port) {
    constexpr std::uint16_t kRtrsMagic = 0x1bbd;
    const std::uint32_t word = byte_at(rest, 0) | byte_at(rest, 1) << 8;
    if (word == kRtrsMagic) return "RTRS, ";
    if (port == 4420) return "NVMe, ";
    return port == 3260 ? "iSER, " : "";
}

// "port 7471 of rdma_cm", or the bare number.
std::string words_for(wire::ServiceId service, ByteView private_data) {
    const auto space = wire::port_space_of(service);
    if (!space) return fmt::format("service id 0x{:016x}", service.raw);
    const std::uint16_t port = wire::port_of(service);
    const auto header = wire::CmaHeader::parse(private_data.first<wire::CmaHeader::kSize>());
    const char* program =
        header.valid() ? program_of(private_data.subspan(wire::CmaHeader::kSize), port) : "";
    return fmt::format("port {} ({}rdma_cm)", port, program);
}

std::uint32_t bytes_of_mtu(std::uint8_t code) {
    return code >= 1 && code <= 5 ? 128u << code : 0;
}

}  // namespace

Exchange& Exchanges::open(const Key& key, Duration time) {
    const auto known = index_.find(key);
    if (known != index_.end()) {
        entries_.splice(entries_.begin(), entries_, known->second);
        return entries_.front().exchange;
    }
    if (entries_.size() == kExchangesMax) {
        over_(entries_.back().exchange);
        index_.erase(entries_.back().key);
        entries_.pop_back();
        ++forgotten_;
    }
    entries_.push_front({key, {}});
    index_[key] = entries_.begin();
    Exchange& made = entries_.front().exchange;
    made.caller = std::get<0>(key);
    made.callee = std::get<1>(key);
    made.begun = time;
    made.last = time;
    return made;
}

Exchange* Exchanges::find(const Gid& source, const Gid& destination, std::uint32_t local,
                          std::uint32_t remote, bool& by_caller) {
    auto at = index_.find({source, destination, local});
    by_caller = at != index_.end();
    if (!by_caller) at = index_.find({destination, source, remote});
    if (at == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, at->second);
    return &entries_.front().exchange;
}

void Exchanges::on_req(Duration time, const Gid& source, const Gid& destination,
                       wire::CmView message) {
    const auto req = wire::CmReq::parse(message);
    Exchange& e = open({source, destination, req.local_id.raw}, time);
    ++e.reqs;
    e.last = time;
    e.service = req.service_id.raw;
    e.what = words_for(req.service_id, req.private_data);
    e.caller_qpn = req.local_qpn.raw;
    e.caller_psn = req.starting_psn;
    e.mtu = bytes_of_mtu(req.path_mtu);
    e.retries = req.retry_count;
    e.rnr_retries_of_callee = req.rnr_retry_count;
    e.responder_resources = req.responder_resources;
}

const Exchange* Exchanges::on_rep(const Gid& source, const Gid& destination, wire::CmView message) {
    const auto rep = wire::CmRep::parse(message);
    bool by_caller = false;
    Exchange* e = find(source, destination, rep.local_id.raw, rep.remote_id.raw, by_caller);
    if (e == nullptr) return nullptr;
    ++e->reps;
    e->callee_qpn = rep.local_qpn.raw;
    e->callee_psn = rep.starting_psn;
    e->rnr_retries_of_caller = rep.rnr_retry_count;
    e->callee_resources = rep.responder_resources;
    return e->reps == 1 && e->reqs > 0 ? e : nullptr;
}

void Exchanges::on_rej(const Gid& source, const Gid& destination, wire::CmView message,
                       Duration time) {
    const auto rej = wire::CmRej::parse(message);
    bool by_caller = false;
    Exchange* e = find(source, destination, rej.local_id.raw, rej.remote_id.raw, by_caller);
    // A refusal is worth telling even if what it answers was before the capture.
    if (e == nullptr) e = &open({destination, source, rej.remote_id.raw}, time);
    if (e->rejected) return;
    e->rejected = rej.reason;
    e->rejecter = source;
    e->rejected_rep = rej.answered == wire::CmAnswered::Rep;
}

void Exchanges::on_sidr(Duration time, const Gid& source, const Gid& destination,
                        const wire::CmMad& mad) {
    if (mad.attribute == wire::CmAttribute::SidrReq) {
        const auto req = wire::CmSidrReq::parse(mad.message);
        Exchange& e = open({source, destination, req.request_id.raw}, time);
        ++e.reqs;
        e.last = time;
        e.is_datagram = true;
        e.service = req.service_id.raw;
        e.what = words_for(req.service_id, req.private_data);
        return;
    }
    const auto rep = wire::CmSidrRep::parse(mad.message);
    const auto at = index_.find({destination, source, rep.request_id.raw});
    if (at == index_.end()) return;
    Exchange& e = at->second->exchange;
    ++e.reps;
    e.callee_qpn = rep.qpn.raw;
    e.sidr_status = static_cast<std::uint8_t>(rep.status);
}

// All of these begin with the two ids.
void Exchanges::on_other(const Gid& source, const Gid& destination, const wire::CmMad& mad) {
    const auto ids = wire::CmRtu::parse(mad.message);
    bool by_caller = false;
    Exchange* e = find(source, destination, ids.local_id.raw, ids.remote_id.raw, by_caller);
    if (e == nullptr) return;
    if (mad.attribute == wire::CmAttribute::Rtu) ++e->rtus;
    if (mad.attribute == wire::CmAttribute::Mra) ++e->mras;
    if (mad.attribute == wire::CmAttribute::Drep) ++e->dreps;
    if (mad.attribute != wire::CmAttribute::Dreq) return;
    if (e->dreqs++ != 0) return;
    e->leaver = source;
    e->leaver_is_caller = by_caller;
}

const Exchange* Exchanges::on_message(Duration time, const Gid& source, const Gid& destination,
                                      const wire::CmMad& mad) {
    switch (mad.attribute) {
        case wire::CmAttribute::Req:
            on_req(time, source, destination, mad.message);
            return nullptr;
        case wire::CmAttribute::Rep:
            return on_rep(source, destination, mad.message);
        case wire::CmAttribute::Rej:
            on_rej(source, destination, mad.message, time);
            return nullptr;
        case wire::CmAttribute::SidrReq:
        case wire::CmAttribute::SidrRep:
            on_sidr(time, source, destination, mad);
            return nullptr;
        case wire::CmAttribute::Mra:
        case wire::CmAttribute::Rtu:
        case wire::CmAttribute::Dreq:
        case wire::CmAttribute::Drep:
            on_other(source, destination, mad);
            return nullptr;
        default:
            return nullptr;
    }
}

void Exchanges::finish() {
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) over_(entry->exchange);
    entries_.clear();
    index_.clear();
}

}  // namespace feroce::cli
