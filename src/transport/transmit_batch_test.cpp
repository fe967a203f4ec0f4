// Which packets share a run, and hence a segmented send.
#include "transport/transmit_batch.hpp"

#include <gtest/gtest.h>

namespace feroce::transport {
namespace {

constexpr std::size_t kSize = 64;
constexpr Qpn kForeign{0x000011};  // Of a peer without slots: its slot is that of QP1.

class Runs final : public RunSink {
public:
    void transmit(std::span<const TransmitRun> runs) override {
        for (const TransmitRun& run : runs) packets.push_back(run.packet_count);
    }
    std::vector<std::uint32_t> packets;
};

class TransmitBatchTest : public testing::Test {
protected:
    std::vector<std::uint32_t> runs_of(const std::vector<Qpn>& destinations) {
        for (const Qpn destination : destinations) batch.append({}, destination, kSize);
        batch.flush();
        return std::exchange(sink.packets, {});
    }

    Runs sink;
    TransmitBatch batch{sink, 1 << 16};
};

using Counts = std::vector<std::uint32_t>;

TEST_F(TransmitBatchTest, PacketsToOneSlotShareARun) {
    EXPECT_EQ(runs_of({qpn_of(3, 1), qpn_of(3, 2), qpn_of(4, 1)}), (Counts{2, 1}));
}

// The peer's kernel gives a run to the process that its first packet is for.
TEST_F(TransmitBatchTest, WhatTheConnectionManagerSendsDoesNot) {
    EXPECT_EQ(runs_of({kGeneralServicesQpn, kGeneralServicesQpn}), (Counts{1, 1}));
    EXPECT_EQ(runs_of({kGeneralServicesQpn, kForeign, kForeign, kGeneralServicesQpn}),
              (Counts{1, 2, 1}));
}

TEST_F(TransmitBatchTest, NorBehindAPacketThatWasTakenBack) {
    batch.append({}, kGeneralServicesQpn, kSize);
    batch.append({}, kForeign, kSize);
    batch.retract(kSize);
    EXPECT_EQ(runs_of({kForeign, kForeign}), (Counts{1, 2}));
}

}  // namespace
}  // namespace feroce::transport
