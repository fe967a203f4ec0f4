// Engine: one shard of the soft NIC, a passive object. Packets, posts and time come in as
// arguments; packets go out through the Port, completions into CompletionQueues, events into the
// EventQueue. It has no thread, clock or socket: whoever calls it must hold the shard's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/random.hpp"
#include "base/result.hpp"
#include "base/ring.hpp"
#include "base/time.hpp"
#include "device/completion_queue.hpp"
#include "device/events.hpp"
#include "device/icrc_check.hpp"
#include "device/multicast.hpp"
#include "device/port.hpp"
#include "device/qp_table.hpp"
#include "device/queue_memory.hpp"
#include "device/send_windows.hpp"
#include "device/timers.hpp"
#include "device/xrc.hpp"
#include "mem/memory.hpp"
#include "transport/qp_state.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::device {

class Engine final : public transport::EventSink {
public:
    struct Config {
        SlotNumber slot = 1;  // In every QPN of this shard; steers packets to it.
        std::uint32_t qp_max = 1u << kQpnLowBits;
        std::size_t arena_bytes = 512 * 1024;
        bool verify_icrc = true;  // Off only under fuzzing.
        transport::SendWindow::Limits window;
        // For packets of reliable connections that came before one that is missing. 0: none is
        // kept, and after a loss all that follows is sent again. A connection that loses takes 0.6
        // MiB at a path MTU of 1 KiB and 2.2 at 4 KiB, and twice that if responses are missing as
        // well.
        std::size_t held_bytes_max = 0;
    };

    // Outlived by all of these. `memory` and `xrc` are shared by the shards of a process.
    struct Parts {
        mem::Memory& memory;
        XrcDomains& xrc;
        Port& port;
        EventListener& events;
        RandomSource& random;
        // Hears of copies to and from far memory, and passes it on to copy_done(). Null: there is
        // no far memory.
        mem::CopyListener* copies = nullptr;
    };

    Engine(const Config& config, const Parts& parts);
    ~Engine() override;

    // Objects.
    Result<transport::QueuePair*> create_qp(const transport::QpInit& init);
    // The general services QP (QPN 1), for the connection manager. One an engine.
    Result<transport::QueuePair*> create_gsi_qp(const transport::QpInit& init);
    void destroy_qp(transport::QueuePair& qp);
    void forget(const CompletionQueue& cq) { held_.drop(cq); }  // No queue pair uses it any more.
    // Whether modify_qp() would do it. Changes nothing.
    static Result<void> check_modify(const transport::QueuePair& qp,
                                     const transport::QpAttributes& attributes,
                                     transport::AttributeMask mask);
    Result<void> modify_qp(Instant now, transport::QueuePair& qp,
                           const transport::QpAttributes& attributes,
                           transport::AttributeMask mask);
    Result<void> attach_multicast(transport::QueuePair& qp, const Gid& group);
    Result<void> detach_multicast(transport::QueuePair& qp, const Gid& group);

    // Work. Packets leave at the next run().
    Result<void> post_send(Instant now, transport::QueuePair& qp, const transport::SendWr& wr);
    // All of them or none.
    Result<void> post_sends(Instant now, transport::QueuePair& qp,
                            std::span<const transport::SendWr> list);
    Result<void> post_receive(Instant now, transport::QueuePair& qp,
                              const transport::ReceiveWr& wr);

    // Whether the peer of a queue pair without work is there: see Machine::ask_peer(). What it
    // answers is counted in packets_received.
    bool ask_peer(Instant now, transport::QueuePair& qp);
    // It has not answered: to ERR, unless sends are left, whose own retries tell.
    void give_up_peer(Instant now, transport::QueuePair& qp);

    // The world.
    void receive(Instant now, const Datagram& datagram);
    // A packet that receive() is given soon, after the next one; too short for one: nothing. With
    // many queue pairs its own is in no cache: that is fetched while the other packet is worked on.
    void expect(ByteView packet);
    // A copy between staging and far memory is over: see mem/far_memory.hpp.
    void copy_done(Instant now, mem::CopyToken token, bool good);
    // Null: no copies are made here.
    const transport::Copies* copies() const { return copies_ ? &*copies_ : nullptr; }
    // Whether a queue pair has bytes on their way there. To be waited for before it is destroyed or
    // goes to RESET: the program may use its buffers after that.
    static bool delivers(const transport::QueuePair& qp) { return qp.delivers(); }
    // Timers that are due, acknowledgements owed, work, then transmit. Receive completions of
    // reliable connections that receive() caused become visible after that.
    void run(Instant now);
    Instant next_wakeup() const;  // When run() should be called at the latest; kNever if idle.
    bool has_work() const;        // run() would send or complete something now.
    // Receive completions wait for run() to acknowledge them.
    bool holds_completions() const { return held_.has_work(); }
    // All that run() would send is acknowledgements, of a few queue pairs.
    bool owes_only_acks(Instant now) const;
    // What receive() made us owe waits for a later run(), though the program can see the WRITEs
    // already: leaves the acknowledgements to peers on this machine, where they are found if this
    // process ends before. False if answers are owed, which acknowledge too, or if there is no room
    // for all: run() must not wait.
    bool leave_acks_behind();
    Instant last_run() const { return last_run_; }

    const transport::Counters& counters() const { return counters_; }
    const transport::ReasonLog& reasons() const { return reasons_; }
    // What is sent to the peer of a connected queue pair stays in this machine's memory.
    bool goes_by_ring(const transport::QueuePair& qp) const;
    // Brings what is noticed of a queue pair up to date. Slow: for whoever looks at the reasons.
    void observe(transport::QueuePair& qp);
    // A source all of whose many packets were damaged: something on the way rewrites them. Slow.
    std::optional<Gid> mangled_source() const { return icrc_.never_verified(kMangledPackets); }
    const QpTable& qps() const { return qps_; }
    QpTable& qps() { return qps_; }

    // transport::EventSink
    void qp_event(transport::QueuePair& qp, transport::AsyncEventType type) override;
    void srq_event(transport::ReceiveQueue& srq, transport::AsyncEventType type) override;
    transport::XrcTarget find_xrc_srq(SrqNumber number, std::uint32_t xrc_domain) override;

private:
    void apply_modify(Instant now, transport::QueuePair& qp,
                      const transport::QpAttributes& attributes, transport::AttributeMask mask);
    transport::QueuePair& add_qp(Qpn qpn, const transport::QpInit& init);
    void to_reset(Instant now, transport::QueuePair& qp);
    // engine_receive.cpp
    void receive_somewhere(Instant now, const wire::Packet& packet, const Datagram& datagram);
    void receive_unsealed(Instant now, wire::Packet& packet, const Datagram& datagram);
    void examine(Instant now, const wire::Packet& packet, const Datagram& datagram);
    void dispatch(Instant now, const wire::Packet& packet, const Datagram& datagram);
    // Or another shard's.
    bool is_ours(const wire::Packet& packet, const Datagram& datagram) const;
    void deliver_multicast(Instant now, const wire::Packet& packet, const Datagram& datagram);
    void deliver(Instant now, transport::QueuePair& qp, const wire::Packet& packet,
                 const Datagram& datagram);
    bool comes_from_peer(transport::QueuePair& qp, const wire::Packet& packet,
                         const Datagram& datagram);
    void note_drop(transport::NoticeKind kind, const wire::Packet& packet, const Datagram& datagram,
                   const transport::QueuePair* qp);
    void notify_congestion(Instant now, transport::QueuePair& qp);

    // Calls a queue pair's machine and counts what it sends.
    template <class F>
    void call_machine(Instant now, transport::QueuePair& qp, F&& call) {
        const std::uint64_t before = transmit_.packets_sent();
        call(qp.machine());
        qp.count_sent(transmit_.packets_sent() - before);
        if (qp.lost_completion()) [[unlikely]]
            fail_overflowed(now, qp);
    }
    void fail_overflowed(Instant now, transport::QueuePair& qp);
    transport::SendWindow& acquire_window(const transport::QueuePair& qp);
    // Its address vector has changed; `next` is null if it has no window.
    void follow_path(transport::QueuePair& qp, transport::SendWindow* next);
    void settle(Instant now, transport::QueuePair& qp);  // After a call: ready list or timer.
    // Ready, or waiting for its window; `left` of its turn, 0 if it has none now.
    void line_up(Instant now, transport::QueuePair& qp, std::uint32_t left = 0);
    void make_ready(transport::QueuePair& qp);
    void follow_rings();  // Some have come into use, or out of it.
    void run_timers(Instant now);
    void run_ready(Instant now);
    // Of so many packets at most; how many of them are left.
    std::uint32_t take_turn(Instant now, transport::QueuePair& qp, std::uint32_t packets);
    bool owes_acks() const;
    void seat(Instant now, transport::QueuePair& qp, std::uint32_t left);  // After it.

    Config config_;
    Parts parts_;
    transport::Counters counters_;
    transport::ReasonLog reasons_;
    transport::TransmitBatch transmit_;
    transport::HeldCompletions held_;
    QueueMemory queue_memory_;
    std::optional<transport::Copies> copies_;
    transport::HoldBudget hold_budget_;
    transport::Services services_;
    QpTable qps_;
    Timers timers_;
    Windows windows_;
    MulticastGroups groups_;
    // Chance alone does not damage that many packets and spare none.
    static constexpr std::uint64_t kMangledPackets = 4;
    IcrcCheck icrc_;
    Ring<transport::QueuePair*> ready_;  // First come first served.
    Instant last_run_{};
    std::uint64_t ring_changes_ = 0;  // Of the port, when the windows last followed them.
    bool left_behind_ = false;        // Acknowledgements that were not all sent since.
    Qpn expected_;                    // Of the last packet announced by expect().
};

}  // namespace feroce::device
