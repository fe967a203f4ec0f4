// Asynchronous events: from the engine's and the queues' reports to ibv_get_async_event.
#pragma once

#include "device/completion_queue.hpp"
#include "device/events.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

device::EventListener& event_listener();            // Of every engine.
device::CompletionListener& completion_listener();  // Of every completion queue.

// Before an object goes away: drops its events that nobody has fetched and waits until those that
// somebody has are acknowledged. A signal handler may leave that wait by siglongjmp(): the caller
// must bear to be called again from its start.
void settle_events(process::Undisturbed& call, Qp& qp);
void settle_events(process::Undisturbed& call, Srq& srq);
void settle_events(process::Undisturbed& call, Cq& cq);  // Async and completion events.

}  // namespace feroce::verbs
