// Events: channels with a pollable descriptor, and the way from what the connection manager says to
// what the program is told. The manager's thread only queues; the work (modifying the queue pair,
// answering) is done by the thread that fetches the event.
#pragma once

#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {

Channel* make_channel();  // Null with errno set.

// A local event of the id, such as RDMA_CM_EVENT_ADDR_RESOLVED, as a list of one. This takes
// memory, so it comes before what cannot be undone.
Events make_event(CmId& id, std::uint32_t type);
// Room for events of the service, before it gets to know the id. May throw; may be called again.
void reserve_events(CmId& id, std::size_t count);
// Takes the library's lock; the event, a list of one, goes to the account's channel. Cannot fail.
void queue_event(Events event);

// For a synchronous id: waits for its next event and keeps it in id.event; -1 with errno if that
// tells of failure. For others: 0 at once.
int complete(CmId& id);

// The id goes away: drops what it has queued and waits until what was handed out is acknowledged.
// Requests to it that nobody fetched are returned, for the caller to refuse.
Events settle_events(process::Undisturbed& call, CmId& id);
void move_events(process::Undisturbed& call, CmId& id, Channel& to);

// Completes `event.base`; false if the program must not see it.
bool digest(Event& event);
// Counts the event as acknowledged and frees it.
void discard(std::unique_ptr<Event> event);

}  // namespace feroce::rdmacm
