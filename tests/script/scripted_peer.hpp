// One engine against a peer that a test plays by hand: the test sends packets to it at times it
// chooses and looks at every packet that comes back. No network, no second engine: what a test
// shows is the behaviour of one side alone.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "device/engine.hpp"
#include "transport/rc/gap_list.hpp"
#include "wire/packet.hpp"

namespace feroce::script {

using device::CompletionQueue;
using device::Engine;
using transport::Attribute;
using transport::AttributeMask;
using transport::Completion;
using transport::QpAttributes;
using transport::QpState;
using transport::QpType;
using transport::QueuePair;
using transport::SendOp;
using transport::SendWr;
using transport::WcStatus;
using wire::Opcode;

inline constexpr Gid kOurs = Gid::from_v4(0x7f00'0001);
inline constexpr Gid kPeers = Gid::from_v4(0x7f00'0002);
inline constexpr Qpn kPeerQpn{0x02'1234};
inline constexpr Psn kSendPsn{0xff'fffe};     // Ours: wraps after two packets.
inline constexpr Psn kReceivePsn{0xff'fffd};  // The peer's.
inline constexpr Qkey kQkey{0x1111'1111};
inline constexpr std::uint32_t kMtu = 1024;
inline constexpr std::uint16_t kPeerPort = 50'000;

struct SentPacket {
    std::vector<std::byte> bytes;
    wire::Packet packet;  // Points into bytes, which a move keeps in place.
};

class CapturePort final : public device::Port {
public:
    void transmit(std::span<const transport::TransmitRun> runs) override;
    bool join_group(const Gid&) override { return joins_groups; }
    void leave_group(const Gid&) override {}
    void tell_destinations() override { tells_destinations = true; }
    bool goes_by_ring(const transport::Path&, SlotNumber) const override { return has_ring; }
    bool has_room(const transport::Path&, SlotNumber, std::size_t) override {
        return ring_room && places < places_max;
    }
    ByteSpan place(const transport::Path&, SlotNumber, std::size_t size, std::uint32_t) override;
    void take_back() override { placed.clear(); }
    std::optional<Unread> unread(SlotNumber) override;
    bool hand_over(const device::Datagram&) override { return hands_over; }
    bool inherits(const transport::Path&, SlotNumber) override { return has_ring; }
    bool leave_behind(const transport::Path&, SlotNumber, transport::AckView) override {
        ++left_behind;
        return true;
    }
    void take_legacies_back() override { left_behind = 0; }
    std::uint64_t ring_changes() const override { return changes; }
    int send_error(const transport::Path&) const override { return refusal; }
    std::uint64_t unsent_packets() const override { return unsent; }

    std::deque<SentPacket> sent;
    bool tells_destinations = false;
    bool joins_groups = true;
    bool has_ring = false;      // Packets may go by memory,
    bool ring_room = false;     // where there is room.
    std::uint64_t changes = 0;  // Of what goes by memory.
    // After so many more looks at it the peer has read what went by memory. None: not told.
    std::optional<int> looks_until_read;
    bool hands_over = false;   // To another shard or process.
    int left_behind = 0;       // Acknowledgements.
    std::uint64_t unsent = 0;  // Packets that could not be sent.
    int refusal = 0;           // Of the kernel, for what was sent last.
    std::vector<std::byte> placed;
    int places = 0;                                    // Packets that were built there,
    int places_max = std::numeric_limits<int>::max();  // and may be.

private:
    void record(ByteView bytes);
    void record_placed();
};

class EventRecorder final : public device::EventListener {
public:
    void on_qp_event(QueuePair&, transport::AsyncEventType type) override {
        events.push_back(type);
    }
    void on_srq_event(transport::ReceiveQueue&, transport::AsyncEventType type) override {
        events.push_back(type);
    }

    std::vector<transport::AsyncEventType> events;
};

struct QpOptions {
    QpType type = QpType::Rc;
    std::uint8_t retry_count = 2;
    std::uint8_t rnr_retry = 1;
    std::uint8_t timeout = 14;  // 67 ms.
    std::uint8_t read_atomic_max = 4;
    std::uint8_t dest_read_atomic_max = 2;
    std::uint32_t access = 15;
    std::uint32_t send_wr_max = 64;
    std::uint32_t receive_wr_max = 64;
    std::uint32_t inline_max = 64;
    Psn send_psn = kSendPsn;
    bool verify_icrc = false;    // Of the engine: most scripts do not seal what they send.
    bool ring = false;           // The peer is reached by memory.
    bool keeps_packets = false;  // Selective repeat, of the engine.
    QpState state = QpState::Rts;
};

class ScriptedPeer {
public:
    static constexpr std::size_t kMemoryBytes = 1 << 17;

    explicit ScriptedPeer(const QpOptions& options = {});

    // Time and the engine.
    void after(Duration pause);  // Moves the clock, then runs the engine.
    void run() { after(Duration{0}); }
    Instant now{std::chrono::seconds(1)};

    // What the peer does.
    struct Spec {
        wire::Extensions extensions{};
        std::size_t payload_size = 0;
        bool ack_request = true;
        bool solicited = false;
        std::byte fill{0x5a};
        ByteView payload{};         // Instead of it.
        std::uint32_t packets = 1;  // That it says to stand for, by a ring.
    };
    void peer_sends(Opcode opcode, Psn psn, const Spec& spec);
    // The same, but the engine has only received it.
    void peer_delivers(Opcode opcode, Psn psn, const Spec& spec);
    void peer_sends(Opcode opcode, Psn psn) { peer_sends(opcode, psn, Spec{}); }
    void peer_acks(Psn psn, std::uint8_t credits = wire::kNoCredits, std::uint32_t msn = 0);
    void peer_naks(Psn psn, wire::NakCode code);
    void peer_rnr(Psn psn, std::uint8_t timer);
    // With an acknowledgement that is no news: runs of packets that are missing and kept, in turn.
    void peer_lists(Psn base, std::array<std::uint16_t, transport::rc::GapList::kRuns> runs);
    void peer_says_hello();  // That it understands lists.

    // Where it sends from.
    Gid peer_address = kPeers;
    std::uint16_t peer_port = kPeerPort;
    bool peer_sends_by_ring = false;

    // A line of the script, which a failure names. Never given: the compiler fills it in.
    struct Line {
        const char* file;
        int number;
    };

    // What came back, in order; fails the test if there is nothing.
    SentPacket expect_sent(Opcode opcode, Psn psn,
                           Line line = {__builtin_FILE(), __builtin_LINE()});
    void expect_ack(Psn psn, wire::Syndrome::Kind kind = wire::Syndrome::Kind::Ack,
                    Line line = {__builtin_FILE(), __builtin_LINE()});
    void expect_nak(Psn psn, wire::NakCode code, Line line = {__builtin_FILE(), __builtin_LINE()});
    void expect_silence(Line line = {__builtin_FILE(), __builtin_LINE()});

    // What the program does.
    void post(SendOp op, std::uint32_t length, std::uint64_t wr_id, bool signaled = true);
    SendWr send_wr(SendOp op, std::uint32_t length, std::uint64_t wr_id);
    void post_receive(std::uint32_t length, std::uint64_t wr_id);
    std::optional<Completion> poll();
    void expect_completion(std::uint64_t wr_id, WcStatus status,
                           Line line = {__builtin_FILE(), __builtin_LINE()});
    void expect_no_completion(Line line = {__builtin_FILE(), __builtin_LINE()});
    Result<void> modify(QpState to);
    void restart();  // By RESET to RTS, with the attributes of its first life.

    std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory.data()); }
    wire::Reth reth(std::uint32_t length, std::uint64_t offset = 0) const {
        return {address() + offset, keys.rkey, length};
    }

    Prng random{1};
    mem::Memory table{mem::Limits{}, random};
    device::XrcDomains xrc;
    CapturePort port;
    EventRecorder events;
    CompletionQueue cq{1024, nullptr, nullptr};
    std::vector<std::byte> memory = std::vector<std::byte>(kMemoryBytes);
    PdId pd = *table.alloc_pd();
    mem::RegionKeys keys;
    transport::ReceiveQueue srq{pd, 64, 4};  // In use only by an XRC target, under srq_number.
    SrqNumber srq_number;
    Engine engine;  // After all it points to.
    QueuePair* qp = nullptr;

private:
    void connect();
    void bring_up();
    static Engine::Config config(const QpOptions& options);

    QpOptions options_;
    // The list of the last posted request: posts copy it.
    mem::Sge sge_{};
};

AttributeMask mask(std::initializer_list<Attribute> attributes);

}  // namespace feroce::script
