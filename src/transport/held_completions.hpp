// HeldCompletions: receive completions that wait until their acknowledgement was transmitted. A
// program may end in any way the moment it has polled a completion; what we owe the peer for it
// must be with the kernel by then, or the peer waits for an answer that nobody will give.
//
// One an engine, used under its lock. The engine releases after every transmit; until then no
// thread can see what is held. Completions of one queue pair leave in the order they came.
//
// Its memory is taken at its creation: a peer decides how much is held, by READs whose responses
// come before the acknowledgement. A request for whose completion there is no place is not
// executed, as if the network had lost it.
#pragma once

#include <cstddef>
#include <vector>

#include "base/packet_number.hpp"
#include "transport/work.hpp"

namespace feroce::transport {

class QueuePair;

class HeldCompletions {
public:
    // More than one look at the network brings: 64 packets from each of the rings, and as much as
    // two sockets give at once.
    static constexpr std::size_t kPlaces = 20480;
    // Of these, what one queue pair may have: its peer does not hold up all others.
    static constexpr std::size_t kPlacesOfOne = kPlaces / 4;

    HeldCompletions();

    // Whether hold() would find no place.
    bool full_for(const QueuePair& qp) const;
    // Of a request whose last packet has this number and was not acknowledged yet.
    void hold(QueuePair& qp, PacketNumber number, CompletionSink& sink,
              const Completion& completion);
    // Of a request that failed, with its queue pair: must not overtake what is held of that one,
    // nor bytes on their way into far memory. Without a place it leaves now, and before it all that
    // is held of that queue pair, after what there is to transmit.
    void push(QueuePair& qp, CompletionSink& sink, const Completion& completion);

    // All of that queue pair's leaves now, after what there is to transmit.
    void give_all(QueuePair& qp);

    bool empty() const { return held_.empty(); }
    // Whether release() may find something to give: not what waits for bytes on their way into far
    // memory. Whoever hears of their end owes QueuePair::finish_flush().
    bool has_work() const { return held_.size() > waiting_; }
    // To be called after a transmit. What is left waits for READ responses that come before its
    // acknowledgement. Stops at a completion that its queue had no room for and returns its queue
    // pair; to be called again until null.
    [[nodiscard]] QueuePair* release();
    void drop(QueuePair& qp);               // It went to RESET, or is destroyed.
    void drop(const CompletionSink& sink);  // It is destroyed.

private:
    struct Held {
        QueuePair* qp;
        PacketNumber number;
        CompletionSink* sink;
        Completion completion;
    };
    void put(const Held& held);
    static bool waits_for_copies(const Held& held);
    static bool may_be_seen(const Held& held);
    std::size_t give_run(std::size_t first, QueuePair*& lost);

    std::vector<Held> held_;   // Never more than kPlaces.
    std::size_t waiting_ = 0;  // Of them, at the last release(), for copies; 0 if not known.
};

}  // namespace feroce::transport
