// Channel: one connection of a path, of either end, once it has a queue pair: receives that post
// themselves again, and an account of the send queue. Most sends ask for no completion; every few
// do, and their completions give back the room of all before them. What is posted during a round of
// the loop goes to the device together at its end: one doorbell, and packets that travel together.
// As much as the device sends at once goes earlier: the peer shall not wait for the whole round.
//
// The owner keeps it until its completion queue is gone. Any failure is told once, after which the
// channel does nothing more.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "feroce/loop.hpp"
#include "feroce/memory.hpp"
#include "feroce/operation.hpp"
#include "rtrs/immediate.hpp"
#include "rtrs/send_credits.hpp"

namespace feroce::rtrs {

// As work requests name memory.
inline std::uint64_t address_of(ByteView bytes) {
    return reinterpret_cast<std::uint64_t>(bytes.data());
}

class Channel {
public:
    class Owner {
    public:
        // `data` is what a SEND brought; valid during the call.
        virtual void on_receive(Channel& channel, const ibv_wc& completion, ByteView data) = 0;
        virtual void on_room(Channel& channel) = 0;
        virtual void on_broken(Channel& channel, const char* why) = 0;

    protected:
        ~Owner() = default;
    };

    struct Shape {
        std::uint32_t sends = 0;
        std::uint32_t receives = 0;            // With kSpareReceives among them.
        std::uint32_t receive_size = 0;        // Of each,
        std::uint32_t first_receive_size = 0;  // but of the first.
        std::uint32_t outbox_size = 0;         // For messages that are sent from here.
    };

    Channel(Owner& owner, std::uint16_t number, const Shape& shape, rdma::Loop& loop);
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    std::uint16_t number() const { return number_; }
    ibv_qp* qp() const { return qp_; }
    // Registers its memory and posts its receives. False if the device refuses.
    bool start(ibv_qp* qp);
    // The queue pair touches nothing any more: lets go of the memory. Completions that still come
    // are ignored.
    void stop();

    bool has_room(std::size_t count) const { return credits_.has(count) && qp_ != nullptr; }
    // Positions in the order of posting: all that was posted up to acknowledged() has arrived, and
    // the device needs its memory no more.
    std::uint64_t posted() const { return credits_.taken(); }
    std::uint64_t acknowledged() const { return credits_.given(); }
    // Posts a chain of work requests, links and signals are set here. There must be room.
    // `signal`: its acknowledgement is to be noticed as soon as it comes.
    void post(std::span<ibv_send_wr> chain, bool signal = false);
    // A WRITE WITH IMM whose last piece is the request's header; takes room for two. Where a round
    // has several whose data fits a packet, the data of all goes first and then the headers:
    // packets of one size travel together, and no header makes a packet of its own behind each.
    void post_request(ibv_send_wr& wr, bool signal);
    void discard();  // What was posted and has not reached the device never will.
    // An empty RDMA WRITE WITH IMM.
    void post_immediate(Immediate immediate, bool signal = false);
    // An empty RDMA WRITE: the peer's device acknowledges it, and its program sees nothing of it.
    void post_probe();
    // A SEND of the outbox' first bytes.
    void post_message(std::size_t size, bool signal = false);
    // At most kInlineSize.
    void post_inline_message(std::span<std::byte> message, bool signal = false);
    // Binds a type 1 window. `operation` completes if given; else unsignalled.
    void bind(ibv_mw* window, const ibv_mw_bind_info& where, rdma::Operation* operation);
    ByteSpan outbox() { return ByteSpan(memory_).first(shape_.outbox_size); }

    static constexpr std::uint32_t kInlineSize = 64;
    // Fewer than so many are not posted again yet: the device gets them together.
    static constexpr std::uint32_t kSpareReceives = 16;

private:
    struct Receive : rdma::Operation {
        Channel* channel = nullptr;
        std::uint32_t at = 0;  // In memory_.
        std::uint32_t size = 0;
    };
    struct Send : rdma::Operation {
        Channel* channel = nullptr;
    };
    struct Flush : rdma::Deferred {
        Flush(rdma::Loop& loop, Channel& of);
        Channel& channel;
    };

    static void on_receive(rdma::Operation& operation, const ibv_wc& completion);
    static void on_sent(rdma::Operation& operation, const ibv_wc& completion);
    bool post_receives(std::span<Receive* const> receives);
    void flush();
    bool fits_packet(const ibv_send_wr& wr);
    ibv_send_wr* data_first(std::span<ibv_send_wr> data);
    void broken(const char* why);

    Owner& owner_;
    std::uint16_t number_;
    Shape shape_;
    ibv_qp* qp_ = nullptr;  // Owned by the connection; nullptr before start() and when broken.
    std::pmr::vector<std::byte> memory_;  // Outbox, then receives.
    rdma::detail::Owned<ibv_mr, ibv_dereg_mr> region_;
    std::vector<Receive> receives_;
    Send send_;
    SendCredits credits_;
    // What the device gets at the end of the round; never grow beyond what they have reserved.
    std::vector<ibv_send_wr> batch_;
    std::vector<ibv_sge> batch_sges_;
    std::vector<Receive*> used_receives_;
    std::size_t batch_bytes_ = 0;
    std::size_t small_requests_ = 0;  // In batch_, with data that fits a packet.
    std::uint32_t packet_size_ = 0;   // Of the connection; 0: not known yet.
    Flush flush_;
};

}  // namespace feroce::rtrs
