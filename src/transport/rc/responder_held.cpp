// Requests that came before one that is missing. They are kept as they are, and nothing of them is
// looked at but their length: when the missing one has come they pass all checks in their order, as
// if they came then. See ADR 34.
#include <algorithm>
#include <utility>

#include "transport/rc/recovery.hpp"
#include "transport/rc/responder.hpp"

namespace feroce::transport::rc {

// After a refusal the peer sends all again, so none is kept until the refused one has come: then
// nak_sent_ is set and nothing is here. The same if nothing could be kept behind a gap so far: the
// peer goes back to it. Nothing is kept behind bytes on their way to far memory, which has its own
// order (responder_far.cpp), and no wide packet: where those go, packets are not lost.
bool Responder::hold(const wire::Packet& packet, std::uint32_t packets, PacketNumber number) {
    if ((nak_sent_ && !holds_) || packets != 1) return false;
    if (far_busy_ && (has_pieces() || !far_work()->kept.empty())) return false;
    if (!qp_.make_recovery()) return false;
    Recovery& recovery = *qp_.recovery();
    if (!holds_) recovery.goes_back = std::exchange(recovery.came_again, false);
    if (recovery.requests.has(number)) recovery.came_again = true;
    const PacketNumber end = holds_ ? recovery.requests.end() : expected_ + 1;
    if (!recovery.requests.hold(expected_, number, packet, qp_.attributes().path_mtu)) return false;
    if (!holds_) recovery.list_from = expected_;
    if (end < number) owe_lists(false);  // More than the NAK names.
    holds_ = true;
    return true;
}

// At a time: what is further ahead is told when these are filled. One short packet of a hostile
// peer, who fills none, is not answered by more.
constexpr int kListsMax = 24;
// Of all gaps that were told before: the first ones, and some of those behind, in turn.
constexpr int kListsAgain = 4;

// Of what was not told yet, or of all gaps.
void Responder::owe_lists(bool of_all) {
    Recovery& recovery = *qp_.recovery();
    if (!recovery.peer_reads_lists) return;
    recovery.asked_for_lists |= of_all;
    list_owed_ = true;
}

// With the last acknowledgement again, which is true whatever is owed.
void Responder::send_list(const GapList& list) {
    PacketSpec spec;
    spec.opcode = wire::Opcode::RcAck;
    spec.destination = qp_.attributes().destination_qpn;
    spec.psn = acknowledged_.psn();
    spec.extensions.aeth = {credits(), messages_in_memory()};
    spec.payload_size = GapList::kSize;
    list.store(append_packet(qp_, spec).first<GapList::kSize>());
}

void Responder::send_lists() {
    list_owed_ = false;
    Recovery& recovery = *qp_.recovery();
    const bool asked = std::exchange(recovery.asked_for_lists, false);
    const bool greets = std::exchange(recovery.greets, false);
    if (!holds_ && !greets) return;
    if (!holds_) {  // That the last one has come is all there is to tell.
        GapList list;
        list.base = (expected_ - 1).psn();
        list.runs[1] = 1;
        return send_list(list);
    }
    const PacketNumber told = asked ? tell_gaps(expected_, kListsAgain) : expected_;
    recovery.list_from = tell_gaps(std::max(recovery.list_from, told), kListsMax);
    if (!asked) return;
    const bool starts_over = recovery.list_from <= recovery.retell_from;
    const PacketNumber from = starts_over ? told : std::max(told, recovery.retell_from);
    recovery.retell_from = tell_gaps(from, kListsAgain);
}

// Returns where the last of so many lists ends.
PacketNumber Responder::tell_gaps(PacketNumber from, int lists_max) {
    const OutOfOrderStore& store = qp_.recovery()->requests;
    for (int sent = 0; sent < lists_max && from < store.end(); ++sent) {
        GapList list;
        list.base = from.psn();
        for (std::size_t i = 0; i < GapList::kRuns && from < store.end(); ++i) {
            const PacketNumber end =
                std::min(store.run_end(from, i % 2 != 0), from + GapList::kRunMax);
            list.runs[i] = static_cast<std::uint16_t>(end - from);
            from = end;
        }
        send_list(list);
    }
    return from;
}

// A duplicate that says that its sender understands lists.
bool Responder::take_hello(const wire::Packet& packet) {
    if (!is_hello(packet) || service_ != wire::Service::Rc || !qp_.make_recovery()) return false;
    qp_.recovery()->peer_reads_lists = qp_.recovery()->greets = true;
    owe_lists(true);
    return true;
}

// A READ request that was sent twice, because some were lost. Only a peer that understands lists
// does so, and tells by not asking for an acknowledgement.
bool Responder::is_copy(const wire::Packet& packet, PacketNumber number) const {
    if (packet.info->verb != wire::Verb::ReadRequest || packet.bth.ack_request) return false;
    if (qp_.recovery() == nullptr || !qp_.recovery()->peer_reads_lists) return false;
    return number < expected_ || (holds_ && qp_.recovery()->requests.has(number));
}

// The missing request has come: those behind it follow, up to the next gap, and all of them are
// acknowledged. Of the next gap a requester is told now, behind what else has come by then, if it
// asks for an acknowledgement. One that goes back is about to fill it.
void Responder::execute_held(Instant now, bool asks) {
    Recovery& recovery = *qp_.recovery();
    OutOfOrderStore::Taken next;
    recovery.executed_begin = expected_;
    while (holds_ && !has_pieces() && recovery.requests.take(expected_, next)) {
        holds_ = !recovery.requests.empty();
        ack_owed_ = true;
        take_request(now, next.packet, 1, expected_);
    }
    recovery.executed_end = expected_;
    if (!holds_) return;
    // A READ has as many numbers as its answer has packets. What a peer sent under those is bad.
    recovery.requests.drop_before(expected_);
    holds_ = !recovery.requests.empty();
    if (has_pieces()) {
        drop_held();
        far_work()->gap = true;
        return;
    }
    if (!holds_ || nak_sent_ || !asks) return;
    owe_lists(true);  // It may wait for what it does not know of.
    if (!recovery.goes_back) nak_sent_ = nak_owed_ = true;
}

void Responder::drop_held() {
    list_owed_ = false;
    if (!holds_) return;
    qp_.recovery()->requests.clear();
    holds_ = false;
}

}  // namespace feroce::transport::rc
