// Asynchronous events of an engine, told at once to whoever owns it. Events are data: the listener
// queues them for its own readers.
#pragma once

#include "transport/queue_pair.hpp"

namespace feroce::device {

class EventListener {
public:
    virtual ~EventListener() = default;
    virtual void on_qp_event(transport::QueuePair& qp, transport::AsyncEventType type) = 0;
    virtual void on_srq_event(transport::ReceiveQueue& srq, transport::AsyncEventType type) = 0;
};

}  // namespace feroce::device
