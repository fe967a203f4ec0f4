#include "cli/perfetto/work_requests.hpp"

#include <utility>

#include "wire/print.hpp"

namespace feroce::cli {
namespace {

constexpr char kDone[] = "done";
constexpr char kUnanswered[] = "not answered in this capture";

const char* operation(wire::Verb verb) {
    switch (verb) {
        case wire::Verb::Send:
            return "SEND";
        case wire::Verb::Write:
            return "RDMA WRITE";
        case wire::Verb::ReadRequest:
            return "RDMA READ";
        case wire::Verb::CompareSwap:
            return "compare and swap";
        case wire::Verb::FetchAdd:
            return "fetch and add";
        case wire::Verb::Flush:
            return "FLUSH";
        case wire::Verb::AtomicWrite:
            return "atomic write";
        default:
            return "packet";
    }
}

bool ends_message(const wire::Packet& packet) {
    return packet.info->position == wire::Position::Last ||
           packet.info->position == wire::Position::Only;
}

bool is_datagram(const wire::Packet& packet) {
    return packet.info->service == wire::Service::Ud || packet.info->service == wire::Service::Uc;
}

// An answer of the kind that says how far the peer is, by its PSN.
bool acknowledges(const wire::Packet& packet) {
    return !packet.info->has(wire::Header::Aeth) ||
           packet.aeth().syndrome.kind() == wire::Syndrome::Kind::Ack;
}

bool refuses(const wire::Packet& packet) {
    return packet.info->has(wire::Header::Aeth) &&
           packet.aeth().syndrome.kind() == wire::Syndrome::Kind::Nak &&
           packet.aeth().syndrome.nak_code() != wire::NakCode::SequenceError;
}

}  // namespace

void WorkRequests::begin(double us, const wire::Packet& packet) {
    if (!open_.empty()) open_.back().whole = true;  // Its end is not in the capture.
    if (open_.size() == kOpenMax) end_first(us, kUnanswered);
    Open request;
    request.id = next_id_++;
    request.name = operation(packet.info->verb);
    request.first = packet.bth.psn;
    request.reads = packet.info->verb == wire::Verb::ReadRequest ||
                    packet.info->verb == wire::Verb::CompareSwap ||
                    packet.info->verb == wire::Verb::FetchAdd;
    request.is_acknowledged = !is_datagram(packet);
    Json details{{"psn", packet.bth.psn.raw()}};
    if (packet.info->has(wire::Header::Reth)) details["length"] = packet.reth().length;
    file_.begin(place_, us, request.id, request.name, std::move(details));
    open_.push_back(std::move(request));
    ++count_;
}

void WorkRequests::again(double us, Psn psn) {
    for (Open& request : open_) {
        if (distance(request.first, psn) < 0 || distance(psn, request.last) < 0) continue;
        ++request.resent;
        return file_.mark(place_, us, request.id, "sent again");
    }
}

void WorkRequests::request(double us, const wire::Packet& packet) {
    const Psn psn = packet.bth.psn;
    if (began_ && distance(next_, psn) < 0) return again(us, psn);
    began_ = true;
    next_ = psn + 1;
    if (packet.info->starts_message() || open_.empty() || open_.back().whole) begin(us, packet);
    Open& request = open_.back();
    request.last = psn;
    request.bytes += packet.payload.size();
    ++request.packets;
    request.whole = ends_message(packet);
    if (!request.whole || request.is_acknowledged) return;
    while (!open_.empty()) end_first(us, kDone);
}

void WorkRequests::end_first(double us, const std::string& outcome) {
    const Open& request = open_.front();
    file_.end(place_, us, request.id, request.name,
              {{"outcome", outcome},
               {"packets", request.packets},
               {"bytes", request.bytes},
               {"sent again", request.resent}});
    open_.pop_front();
}

// A response to the next one, or an acknowledgement of it, tells that those before it are done.
void WorkRequests::end_before(double us, Psn psn) {
    while (!open_.empty() && open_.front().whole && distance(open_.front().last, psn) > 0)
        end_first(us, kDone);
}

void WorkRequests::end_refused(double us, const wire::Packet& packet) {
    end_before(us, packet.bth.psn);
    if (!open_.empty()) end_first(us, wire::to_string(packet.aeth().syndrome));
}

void WorkRequests::answer(double us, const wire::Packet& packet) {
    if (refuses(packet)) return end_refused(us, packet);
    const Psn psn = packet.bth.psn;
    if (!acknowledges(packet)) return end_before(us, psn);  // It wants `psn` again.
    // Answers come in order: one to a later request tells that those before it are done.
    while (open_.size() > 1 && distance(open_[1].first, psn) >= 0) end_first(us, kDone);
    if (packet.info->verb == wire::Verb::Ack) {
        if (!open_.empty() && open_.front().whole && !open_.front().reads &&
            distance(open_.front().last, psn) >= 0)
            end_first(us, kDone);
        return;
    }
    // The PSNs of a READ are those of its responses, the first of which is the request's.
    if (!open_.empty() && open_.front().reads && distance(open_.front().first, psn) >= 0 &&
        ends_message(packet))
        end_first(us, kDone);
}

void WorkRequests::finish(double us) {
    while (!open_.empty()) end_first(us, kUnanswered);
}

}  // namespace feroce::cli
