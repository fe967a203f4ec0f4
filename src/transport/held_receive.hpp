// HeldReceive: the receive that the unreliable transports are filling. IBTA completes no receive
// for a message that breaks off or does not fit, so one that was taken stays here for the next
// message, and leaves by a completion or, when the queue pair fails, by a flush.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/time.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

class HeldReceive {
public:
    explicit HeldReceive(QueuePair& qp) : qp_(qp), wqe_(qp.receive_queue().sge_max()) {}

    bool take();  // True if one is held now, taken before or just now.
    std::uint32_t length() const { return wqe_.length; }
    std::span<const mem::Sge> list() const { return wqe_.list(); }
    mem::Fault write(std::uint64_t offset, ByteView bytes);

    // What every completion of it says; the caller adds what came with the packet.
    Completion completion(Instant now) const;
    void complete(const Completion& completion);  // With success.
    // It names memory that may not be written: it completes in error and the queue pair fails.
    void fail(Instant now, Psn psn, mem::Fault fault);
    void flush(Instant now);          // Before the queue's own flush: it was posted first.
    void forget() { held_ = false; }  // Another completes it, or nobody.

private:
    QueuePair& qp_;
    bool held_ = false;
    ReceiveWqe wqe_;  // Valid while held_.
};

}  // namespace feroce::transport
