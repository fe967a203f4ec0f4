// For tests of one machine: two queue pairs over real mem/ and wire/, and a wire between them that
// is a list of packets, so that a test can drop, change and inspect what was sent.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "mem/memory.hpp"
#include "mem/test_pages.hpp"
#include "transport/queue_pair.hpp"
#include "wire/packet.hpp"

namespace feroce::transport {

struct SentPacket {
    Path path;
    std::vector<std::byte> bytes;

    wire::Packet parsed() const {
        wire::Packet packet;
        EXPECT_EQ(wire::parse_packet(bytes, packet), wire::ParseError::None);
        return packet;
    }
};

class Recorder final : public RunSink, public EventSink {
public:
    void transmit(std::span<const TransmitRun> runs) override {
        for (const TransmitRun& run : runs) {
            for (std::size_t at = 0; at < run.bytes.size(); at += run.segment_size) {
                const std::size_t size =
                    std::min<std::size_t>(run.segment_size, run.bytes.size() - at);
                const ByteSpan bytes = run.bytes.subspan(at, size);
                packets.push_back({run.path, {bytes.begin(), bytes.end()}});
            }
        }
    }
    void qp_event(QueuePair&, AsyncEventType type) override { events.push_back(type); }
    void srq_event(ReceiveQueue&, AsyncEventType type) override { events.push_back(type); }
    XrcTarget find_xrc_srq(SrqNumber, std::uint32_t) override { return {}; }
    std::optional<Unread> unread(SlotNumber) override { return unread_now; }

    std::optional<Unread> unread_now;
    std::vector<SentPacket> packets;
    std::vector<AsyncEventType> events;
};

class CompletionList final : public CompletionSink {
public:
    bool push(const Completion& completion) override {
        list.push_back(completion);
        return true;
    }
    std::vector<Completion> list;
};

// One end: its own engine services, one queue pair, and 64 KiB of registered memory.
class End {
public:
    static constexpr std::size_t kBytes = 64 * 1024;

    End(QpType type, Qpn qpn)
        : random_(qpn.raw),
          memory(mem::Limits{}, random_),
          batch(recorder, 1 << 20),
          services{memory, batch, counters, reasons, recorder, held},
          bytes(kBytes),
          pd(*memory.alloc_pd()),
          keys(*memory.register_region({.pd = pd,
                                        .address = bytes.data(),
                                        .length = kBytes,
                                        .iova = address(0),
                                        .access = mem::Access::LocalWrite |
                                                  mem::Access::RemoteWrite |
                                                  mem::Access::RemoteRead})),
          qp(qpn, init(type), services) {}

    std::uint64_t address(std::size_t offset) const {
        return reinterpret_cast<std::uint64_t>(bytes.data() + offset);
    }
    mem::Sge sge(std::size_t offset, std::uint32_t length) const {
        return {address(offset), length, keys.lkey};
    }
    // Pages of the test's own, registered as a region.
    mem::Sge sge_of(const mem::test::Pages& pages) {
        const auto begin = reinterpret_cast<std::uint64_t>(pages.at(0));
        const auto length = static_cast<std::uint32_t>(pages.bytes());
        const auto registered = memory.register_region({.pd = pd,
                                                        .address = pages.at(0),
                                                        .length = length,
                                                        .iova = begin,
                                                        .access = mem::Access::LocalWrite});
        return {begin, length, registered->lkey};
    }
    // The machine is not told.
    template <class Change>
    void change_attributes(Change&& change) {
        QpAttributes attributes = qp.attributes();
        change(attributes);
        qp.set_attributes(attributes);
    }
    // As the device does it.
    void move(QpState to) {
        const QpState from = qp.state();
        qp.set_state(to);
        qp.machine().reserve();
        qp.machine().on_modify(Instant{}, from);
    }
    void run() {
        for (const QpState to : {QpState::Init, QpState::Rtr, QpState::Rts}) move(to);
    }
    void fail() {
        Reason reason;
        reason.rule = Rule::MovedToError;
        qp.fail(Instant{}, reason);
    }
    void post_receive(std::uint64_t wr_id, const mem::Sge& sge) {
        ASSERT_TRUE(qp.post_receive(Instant{}, {wr_id, {&sge, 1}}));
    }
    void send(SendWr wr, const mem::Sge& sge) {
        wr.sges = {&sge, 1};
        ASSERT_TRUE(qp.post_send(Instant{}, wr));
    }
    std::vector<SentPacket> pump(std::uint32_t packets_max = 1000) {
        if (qp.machine().wants_to_send(Instant{})) qp.machine().pump(Instant{}, packets_max);
        batch.flush();
        return std::exchange(recorder.packets, {});
    }
    void receive(const SentPacket& packet) {
        const Arrival arrival{packet.path.source, packet.path.destination, 50000,
                              packet.path.traffic_class, packet.path.hop_limit};
        qp.machine().on_packet(Instant{}, packet.parsed(), arrival);
    }
    void fill(std::size_t offset, std::size_t length, unsigned seed) {
        for (std::size_t i = 0; i < length; ++i)
            bytes[offset + i] = static_cast<std::byte>(seed + i * 7);
    }
    std::uint64_t drops(DropReason reason) const { return counters[reason]; }

private:
    QpInit init(QpType type) {
        return {.type = type,
                .pd = pd,
                .send_cq = &sent,
                .receive_cq = &received,
                .srq = nullptr,
                .capabilities = {.send_wr_max = 16,
                                 .receive_wr_max = 16,
                                 .send_sge_max = 4,
                                 .receive_sge_max = 4,
                                 .inline_max = 64},
                .signal_all = false,
                .xrc_domain = 0,
                .datagram_mtu = 1024,
                .owner = nullptr};
    }

    Prng random_;

public:
    mem::Memory memory;
    Recorder recorder;
    TransmitBatch batch;
    Counters counters;
    ReasonLog reasons;
    HeldCompletions held;
    Services services;
    std::vector<std::byte> bytes;
    PdId pd;
    mem::RegionKeys keys;
    CompletionList sent;
    CompletionList received;
    QueuePair qp;
};

}  // namespace feroce::transport
