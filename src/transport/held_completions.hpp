// HeldCompletions: receive completions that wait until their acknowledgement was transmitted. A
// program may end in any way the moment it has polled a completion; what we owe the peer for it
// must be with the kernel by then, or the peer waits for an answer that nobody will give.
//
// One an engine, used under its lock. The engine releases after every transmit; until then no
// thread can see what is held. Completions of one queue pair leave in the order they came.
#pragma once

#include <cstddef>
#include <vector>

#include "base/packet_number.hpp"
#include "transport/work.hpp"

namespace feroce::transport {

class QueuePair;

class HeldCompletions {
public:
    HeldCompletions();

    // Of a request whose last packet has this number and was not acknowledged yet. Grows beyond its
    // first size only as far as the program has posted receives, and keeps what it has grown to.
    void hold(QueuePair& qp, PacketNumber number, CompletionSink& sink,
              const Completion& completion);
    // Of a receive that failed, with its queue pair: must not overtake what is held.
    void push(QueuePair& qp, CompletionSink& sink, const Completion& completion);

    bool empty() const { return held_.empty(); }
    // To be called after a transmit. What is left waits for READ responses that come before its
    // acknowledgement. Stops at a completion that its queue had no room for and returns its queue
    // pair; to be called again until null.
    [[nodiscard]] QueuePair* release();
    void drop(const QueuePair& qp);         // It went to RESET, or is destroyed.
    void drop(const CompletionSink& sink);  // It is destroyed.

private:
    struct Held {
        QueuePair* qp;
        PacketNumber number;
        CompletionSink* sink;
        Completion completion;
    };
    std::vector<Held> held_;
};

}  // namespace feroce::transport
