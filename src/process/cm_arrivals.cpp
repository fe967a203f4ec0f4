#include "process/cm_arrivals.hpp"

#include <algorithm>
#include <span>

#include "base/shortage.hpp"

namespace feroce::process {
namespace {

// Batches of requests that one turn reads, so that answers get their turn.
constexpr int kRequestBatches = 16;

bool is_request(const CmArrival& arrival) {
    const wire::MadHeader header =
        wire::MadHeader::parse(std::span(arrival.message.mad).first<wire::MadHeader::kSize>());
    const auto attribute = static_cast<wire::CmAttribute>(header.attribute);
    return attribute == wire::CmAttribute::Req || attribute == wire::CmAttribute::SidrReq;
}

}  // namespace

void put_answers_first(std::vector<CmArrival>& arrivals) {
    std::stable_partition(arrivals.begin(), arrivals.end(),
                          [](const CmArrival& a) { return !is_request(a); });
}

const std::vector<CmArrival>& CmArrivals::collect(bool requests_waiting) {
    arrivals_.clear();
    batch_.clear();
    bool requests = false;
    if (requests_waiting)
        for (int i = 0; i < kRequestBatches && shard_.poll_requests(); ++i) requests = true;
    // What there is no memory for is lost, as by the network.
    (void)with_memory([&] { rendezvous_.drain(batch_); });
    if (requests || !batch_.empty()) shard_.take_arrived();
    take_batch(cm::Origin::Neighbour);
    gsi_.drain(batch_);
    take_batch(cm::Origin::Network);
    put_answers_first(arrivals_);
    return arrivals_;
}

const std::vector<CmArrival>& CmArrivals::collect_steered() {
    arrivals_.clear();
    batch_.clear();
    gsi_.drain(batch_);
    take_batch(cm::Origin::Network);
    put_answers_first(arrivals_);
    return arrivals_;
}

void CmArrivals::take_batch(cm::Origin origin) {
    (void)with_memory([&] {
        for (const CmDatagram& d : batch_) arrivals_.push_back({d, origin});
    });
    batch_.clear();
}

}  // namespace feroce::process
