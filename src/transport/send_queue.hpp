// SendQueue: the send work requests of one queue pair, from post to completion, addressed by an
// index that only grows. head() is the oldest not completed, tail() one past the youngest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/psn.hpp"
#include "base/result.hpp"
#include "transport/work.hpp"

namespace feroce::transport {

struct SendWqe {
    SendWr wr;                        // Its sges span points into the queue's own storage.
    std::uint32_t length = 0;         // Bytes of the message.
    std::uint32_t inline_length = 0;  // > 0 only for inlined data, which then is in the queue.
    // Valid once `numbered`: the PSNs [first_psn, first_psn + packets) belong to this request.
    bool numbered = false;
    bool executed = false;  // Local operations (bind, invalidate) that are done.
    // Its memory could not be read: it fails the queue pair once all before it are answered.
    mem::Fault fault = mem::Fault::None;
    Psn first_psn;
    std::uint32_t packets = 0;
    std::uint32_t send_sequence = 0;  // Number of its first message, for end-to-end credits.
};

class SendQueue {
public:
    SendQueue(const QpCapabilities& capabilities, bool signal_all);

    std::uint64_t head() const { return head_; }
    std::uint64_t tail() const { return tail_; }
    bool empty() const { return head_ == tail_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(tail_ - head_); }

    Result<void> post(const SendWr& wr);  // Checks counts and sizes; copies inline data.
    SendWqe& at(std::uint64_t index);
    const SendWqe& at(std::uint64_t index) const;
    ByteView inline_data(std::uint64_t index) const;  // Of an inlined request.
    void retire();                                    // Frees the head.
    void withdraw();                                  // Takes back the youngest.
    void clear();

private:
    QpCapabilities capabilities_;
    bool signal_all_;
    std::vector<SendWqe> slots_;
    std::vector<mem::Sge> sges_;
    std::vector<std::byte> inline_;
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
};

WcOpcode completion_opcode(SendOp op);

}  // namespace feroce::transport
