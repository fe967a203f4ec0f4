// Stream: one end of a connection, as a machine that is told what happened and says what to post.
// It has no socket, thread, clock or queue pair; its rings and targets are memory that it is given,
// of which the peer writes the receive ring and the targets by RDMA.
//
// The wire is rdma-core's. Bytes travel by RDMA WRITE WITH IMMEDIATE into the peer's receive ring,
// of which the peer hands out one half after the other. A message may be sent while the peer's
// credits last: `credit_limit_` counts data messages since the beginning, modulo 2^16. Credits and
// halves are given back when the program has read (offer()).
//
// Not locked: the caller does.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "rsocket/messages.hpp"

namespace feroce::rsockets {

// Bytes of a program that lie in several places.
using Places = std::span<const ByteView>;

// One work request, to be posted in the order of the calls.
struct Send {
    bool has_immediate = true;
    std::uint32_t immediate = 0;  // In the order of the host.
    std::uint64_t address = 0;    // Of the peer's memory, with its key.
    std::uint32_t key = 0;
    std::array<ByteView, 2> bytes{};  // The second is used where the send ring ends.
    bool copied = false;              // `bytes` are valid during post() only.
    std::uint64_t tag = 0;            // For Stream::on_sent().

    std::size_t length() const { return bytes[0].size() + bytes[1].size(); }
};

// Takes what the machine sends.
class Outlet {
public:
    virtual void post(const Send& send) = 0;

protected:
    ~Outlet() = default;
};

struct StreamConfig {
    std::uint32_t send_queue = 384;     // Work requests that may be unfinished, control included.
    std::uint32_t receive_queue = 384;  // Data messages that the peer may send ahead.
    std::uint32_t copied_limit = 64;    // Messages up to this go from a copy, not from the ring.
    std::uint32_t mappings = 0;         // As told_mappings() says.
    std::endian order = std::endian::native;
    ByteSpan send_ring;
    ByteSpan receive_ring;  // The peer writes it, by the next two. Of an even size.
    std::uint64_t receive_address = 0;
    std::uint32_t receive_key = 0;
    ByteSpan targets;  // targets_size() bytes, zero, aligned to 8. The peer writes them.
    std::uint64_t targets_address = 0;
    std::uint32_t targets_key = 0;
};

constexpr std::size_t targets_size(std::uint32_t mappings) {
    return kTargets * kTargetBytes + mappings * kMappingBytes;
}

class Stream {
public:
    static constexpr std::uint32_t kMostCopied = 256;
    // Work requests that only control messages use, so that data cannot keep them from leaving.
    static constexpr std::uint32_t kControlSlots = 4;

    explicit Stream(const StreamConfig& config);
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // Connecting: ours to tell, the peer's, and that both sides can send.
    Greeting greeting() const;
    Result<void> meet(const Greeting& peer);
    void open(Outlet& out);

    // What happened. After any of these, flush() sends what has become due.
    void on_immediate(std::uint32_t raw);
    void on_sent(std::uint64_t tag);
    void fail(int code);  // The connection is gone, without a word of the peer.
    void flush(Outlet& out);

    // What the program wants. send() and receive() do as much as can be done now.
    std::size_t send(Places from, std::size_t skip, Outlet& out);  // But the first `skip` bytes.
    std::size_t receive(ByteSpan to);
    std::size_t peek(ByteSpan to) const;
    void shut_reading(Outlet& out);
    void shut_writing(Outlet& out);
    void disconnect(Outlet& out);
    void keep_alive(Outlet& out);  // Asks whether the peer's queue pair is still there.

    // Mapped memory. offer_mapping() queues; data sent after it stays behind it.
    Result<void> offer_mapping(std::uint32_t index, const Mapping& mapping, Outlet& out);
    // Bytes written to the peer's mapping that has `offset`: 0 if the queue is full.
    Result<std::size_t> write_mapped(ByteView from, std::uint64_t offset, Outlet& out);

    bool has_data() const { return unread_ != 0; }
    std::size_t unread() const { return unread_; }
    bool can_send() const;
    bool can_write_mapped() const;
    bool is_readable() const { return readable_; }  // More may come.
    bool is_writable() const { return writable_; }
    bool is_connected() const { return readable_ || writable_; }
    std::uint32_t peer_mappings() const { return peer_.mappings; }
    bool was_opened() const { return opened_; }
    int error() const { return error_; }  // 0, or why the connection failed.
    // Nothing is on its way or waits for a work request.
    bool is_quiet() const;

private:
    enum class Slot : std::uint8_t { Data, Ring, Control };

    std::size_t half() const { return config_.receive_ring.size() / 2; }
    std::size_t ring_room() const { return config_.send_ring.size() - ring_used_; }
    bool has_data_slot() const { return data_slots_ < config_.send_queue - kControlSlots; }
    bool has_credit() const { return sent_messages_ != credit_limit_; }
    bool take_target();
    std::uint32_t waiting_length(std::size_t index) const;
    std::size_t first_chunk() const;
    std::size_t send_chunk(ByteView& place, Places& rest, std::size_t wanted, Outlet& out);
    void stage(Send& send, ByteView& place, Places& rest, std::size_t length);
    void post(Send& send, Slot slot, Outlet& out);
    void post_control(Control what, Outlet& out);
    bool owes_credits() const;
    void give_credits(Outlet& out);
    void send_mappings(Outlet& out);
    void on_data(std::uint32_t length);
    void on_control(std::uint32_t value);
    bool find_mapping(std::uint64_t offset, Mapping& found) const;

    StreamConfig config_;
    Greeting peer_;
    bool opened_ = false;
    bool readable_ = false;
    bool writable_ = false;
    int error_ = 0;

    // Sending. The target in use is a copy; its place in memory is zeroed when it is taken.
    Target target_;
    std::size_t target_index_ = 0;  // Where it came from, or the next will come from.
    std::uint16_t sent_messages_ = 0;
    std::uint16_t credit_limit_ = 0;
    std::uint32_t data_slots_ = 0;  // Used ones.
    std::uint32_t control_slots_ = 0;
    std::size_t ring_at_ = 0;
    std::size_t ring_used_ = 0;
    std::array<std::byte, kMostCopied> copy_{};
    std::deque<Control> controls_;  // Those that wait for a slot.
    std::deque<std::pair<std::uint32_t, Mapping>> offered_;

    // Receiving.
    std::vector<std::uint32_t> messages_;  // A ring: lengths of those not read to their end.
    std::size_t first_message_ = 0;
    std::size_t message_count_ = 0;
    std::size_t unread_ = 0;
    std::size_t read_at_ = 0;
    std::size_t granted_ = 0;  // Bytes of the ring that the peer may still write.
    std::size_t free_ = 0;     // Bytes read and not yet given back.
    std::size_t free_at_ = 0;  // The half that is given next.
    std::uint16_t read_messages_ = 0;
    std::uint16_t next_credits_ = 0;  // Give credits when that many messages were read.
    std::size_t peer_index_ = 1;      // Where at the peer the next target goes.
};

}  // namespace feroce::rsockets
