#include "lint/rules.hpp"

namespace feroce::lint {

// Only where it has happened: a program that arms and sleeps may know otherwise that nothing could
// have come in between.
void check_sleep(Ledger& ledger, Handle channel, Reporter& out) {
    for (auto& [handle, cq] : ledger.cqs()) {
        if (cq.channel != channel || cq.held_at_arm == 0) continue;
        out.found(
            {Kind::MissedEvent,
             "the program waits in ibv_get_cq_event, but completions (" +
                 std::to_string(cq.held_at_arm) +
                 ") were in the queue before it was armed, and an event tells only of later "
                 "ones",
             "armed", cq.armed_at,
             "poll the queue until it is empty after each ibv_req_notify_cq, before waiting"});
        cq.held_at_arm = 0;
    }
}

void check_acknowledged(const CompletionQueue& cq, Reporter& out) {
    if (cq.events_taken <= cq.events_acknowledged) return;
    out.found({Kind::Unacknowledged,
               "ibv_destroy_cq waits for ever: " +
                   std::to_string(cq.events_taken - cq.events_acknowledged) + " of " +
                   std::to_string(cq.events_taken) +
                   " events that ibv_get_cq_event gave were not acknowledged",
               "last event fetched", cq.event_taken_at,
               "call ibv_ack_cq_events for every event, at the latest before ibv_destroy_cq"});
}

void check_cm_acknowledged(const CmEvents& events, Place place, Reporter& out) {
    if (events.fetched <= events.acknowledged) return;
    out.found(
        {Kind::Unacknowledged,
         "rdma_destroy_id waits for ever: " + std::to_string(events.fetched - events.acknowledged) +
             " of " + std::to_string(events.fetched) +
             " events of the id that rdma_get_cm_event gave were not acknowledged",
         "called", place,
         "call rdma_ack_cm_event for every event, before rdma_destroy_id of its id"});
}

void check_field(const Completion& done, const char* field, Place place, Reporter& out) {
    if (done.status == 0) return;
    out.found({Kind::ErrorIgnored,
               std::string(field) + " was read of the completion of WR " +
                   std::to_string(done.wr_id) + " on queue pair " + qpn_text(done.qpn) +
                   ", which failed with " + done.status_name + ": the field has no meaning then",
               "read", place,
               "look at status first; of a failed completion only wr_id, status, qp_num and "
               "vendor_err mean something"});
}

}  // namespace feroce::lint
