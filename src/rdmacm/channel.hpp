// Event channels: queues behind a pollable descriptor.
#pragma once

#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {

Channel* make_channel();  // Null with errno set.

// Takes lock(); the event goes to the account's channel.
void queue_event(std::unique_ptr<Event> event);
// A local event of the id, such as RDMA_CM_EVENT_ADDR_RESOLVED.
void queue_event(CmId& id, rdma_cm_event_type type, int status);

// For a synchronous id: waits for its next event and keeps it in id.event; -1 with errno if that
// tells of failure. For others: 0 at once.
int complete(CmId& id);

// The id goes away: drops what it has queued and waits until what was handed out is acknowledged.
// Requests to it that nobody fetched are returned, for the caller to refuse.
std::vector<CmId*> settle_events(process::Undisturbed& call, CmId& id);
void move_events(process::Undisturbed& call, CmId& id, Channel& to);

}  // namespace feroce::rdmacm
