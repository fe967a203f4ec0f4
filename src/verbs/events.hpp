// Asynchronous events: from the engine's and the queues' reports to ibv_get_async_event and
// ibv_get_cq_event.
#pragma once

#include "device/completion_queue.hpp"
#include "device/events.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

// Of every engine and every completion queue of an Instance.
class Listener : public device::EventListener, public device::CompletionListener {
public:
    void on_qp_event(transport::QueuePair& machine, transport::AsyncEventType type) override;
    void on_srq_event(transport::ReceiveQueue& queue, transport::AsyncEventType type) override;
    void on_completion_event(device::CompletionQueue& queue) override;
    void on_overflow(device::CompletionQueue& queue) override;
};

// Before an object goes away: drops its events that nobody has fetched and waits until those that
// somebody has are acknowledged. A signal handler may leave that wait by siglongjmp(): the caller
// must bear to be called again from its start.
void settle_events(process::Undisturbed& call, Qp& qp);
void settle_events(process::Undisturbed& call, Srq& srq);
void settle_events(process::Undisturbed& call, Cq& cq);  // Async and completion events.

}  // namespace feroce::verbs
