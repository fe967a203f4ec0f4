// From what the connection manager says to what the program is told. The manager's thread only
// queues; the work (modifying the queue pair, answering) is done here, by the thread that fetches
// the event.
#pragma once

#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {

process::CmUser& cm_user();

// Completes `event.base`; false if the program must not see it.
bool digest(Event& event);
// Counts the event as acknowledged and frees it.
void discard(std::unique_ptr<Event> event);

}  // namespace feroce::rdmacm
