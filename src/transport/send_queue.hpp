// SendQueue: the send work requests of one queue pair, from post to completion, addressed by an
// index that only grows. head() is the oldest not completed, tail() one past the youngest.
//
// A machine with ten thousand queue pairs finds each of them cold, so what a packet costs is the
// cache lines it touches: a request is one line, and what only some operations have stands in
// arrays of its own that the others never look at.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/cache.hpp"
#include "base/packet_number.hpp"
#include "base/result.hpp"
#include "transport/work.hpp"

namespace feroce::transport {

struct alignas(kCacheLine) SendWqe {
    std::uint64_t wr_id = 0;
    std::uint64_t remote_address = 0;
    mem::Sge first_sge;  // The whole list if it has one entry; see SendQueue::sges().
    // Valid once `numbered`: the packets [first_packet, first_packet + packets) are this request's.
    PacketNumber first_packet;
    RKey rkey;
    std::uint32_t length = 0;  // Bytes of the message.
    // As the operation has it: the immediate, the key to invalidate, the type of a FLUSH, or once
    // `numbered` how many packets a READ is asked for at a time.
    std::uint32_t operand = 0;
    std::uint32_t packets = 0;        // Valid once `numbered`.
    std::uint32_t send_sequence = 0;  // Low bits of its first message's number, for credits.
    SendOp op = SendOp::Send;
    // Its memory could not be read: it fails the queue pair once all before it are answered.
    mem::Fault fault = mem::Fault::None;
    std::uint8_t sge_count = 0;
    bool signaled : 1 = false;
    bool solicited : 1 = false;
    bool fence : 1 = false;
    bool inlined : 1 = false;  // The bytes are in the queue.
    bool numbered : 1 = false;
    bool executed : 1 = false;  // Local operations (bind, invalidate) that are done.

    PacketNumber end() const { return first_packet + packets; }
};
static_assert(sizeof(SendWqe) == kCacheLine);

struct AtomicOperands {
    std::uint64_t compare_add = 0;
    std::uint64_t swap = 0;
};

struct DatagramTarget {
    Path path;
    Qpn qpn;
    Qkey qkey;
};

class SendQueue {
public:
    SendQueue(QpType type, const QpCapabilities& capabilities, bool signal_all,
              std::pmr::memory_resource* memory);

    std::uint64_t head() const { return head_; }
    std::uint64_t tail() const { return tail_; }
    bool empty() const { return head_ == tail_; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(tail_ - head_); }
    std::uint32_t room() const { return send_wr_max_ - size(); }

    Result<std::uint64_t> check(const SendWr& wr) const;  // Counts and sizes; the length if good.
    // `length` is what check() has said. Copies inline data.
    Result<void> post(const SendWr& wr, std::uint32_t length);
    SendWqe& at(std::uint64_t index);
    const SendWqe& at(std::uint64_t index) const;
    std::span<const mem::Sge> sges(std::uint64_t index) const;
    ByteView inline_data(std::uint64_t index) const;  // Of an inlined request.
    SrqNumber remote_srq(std::uint64_t index) const;  // XRC only.
    SrqNumber last_remote_srq() const {
        return last_remote_srq_;
    }  // The same, of all that was posted.
    // Of a request whose operation has them: atomics and ATOMIC WRITE, datagrams, binds.
    const AtomicOperands& atomic(std::uint64_t index) const;
    const DatagramTarget& datagram(std::uint64_t index) const;
    const mem::WindowBind& bind(std::uint64_t index) const;
    void retire();  // Frees the head.
    void clear();

private:
    using Rest = std::variant<std::monostate, AtomicOperands, DatagramTarget, mem::WindowBind>;

    std::size_t slot_for_tail();
    [[nodiscard]] bool store_lists(std::size_t slot, const SendWr& wr);
    void store_rest(std::size_t slot, const SendWr& wr);
    std::size_t slot_of(std::uint64_t index) const;

    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
    // The index that stood in the first slot when the queue was last empty: a queue that drains
    // between two posts uses the same few lines again and again.
    std::uint64_t first_slot_index_ = 0;
    std::uint32_t send_wr_max_;
    std::uint32_t sge_max_;
    bool signal_all_;
    bool is_datagram_;
    std::pmr::vector<SendWqe> slots_;  // As many as send_wr_max_, rounded up to a power of two.
    // For each slot, and looked at only by requests that need it:
    std::vector<mem::Sge> sges_;  // sge_max_ entries; none if sge_max_ is 1.
    std::vector<Rest> rest_;
    std::vector<SrqNumber> remote_srqs_;  // None but for XRC.
    SrqNumber last_remote_srq_;
    std::uint32_t inline_max_;
    std::vector<std::byte> inline_;  // inline_max_ bytes.
};

WcOpcode completion_opcode(SendOp op);

}  // namespace feroce::transport
