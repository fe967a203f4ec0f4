#include "transport/rc/out_of_order_store.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/random.hpp"

namespace feroce::transport::rc::out_of_order_store_test {
namespace {

constexpr std::size_t kMtu = 1024;
constexpr std::uint32_t kPackets = OutOfOrderStore::kPackets;
constexpr std::uint32_t kAheadMax = OutOfOrderStore::kAheadMax;

// A request with some bytes that are its own.
class Source {
public:
    const wire::Packet& packet(std::uint64_t seed, std::size_t payload_size) {
        const auto opcode = seed % 2 == 0 ? wire::Opcode::RcWriteOnly : wire::Opcode::RcSendMiddle;
        bytes_.assign(wire::packet_size(opcode, payload_size), std::byte{0});
        wire::Bth bth;
        bth.opcode = opcode;
        bth.psn = Psn(static_cast<std::uint32_t>(seed));
        bth.pad_count = static_cast<std::uint8_t>(wire::pad_of(payload_size));
        wire::Extensions extensions;
        extensions.reth = {seed, RKey{7}, 9};
        const std::size_t headers = wire::emit_headers(bytes_, bth, extensions);
        for (std::size_t i = 0; i < payload_size; ++i)
            bytes_[headers + i] = static_cast<std::byte>(seed * 31 + i);
        EXPECT_EQ(wire::parse_packet(bytes_, packet_), wire::ParseError::None);
        return packet_;
    }
    void destroy() { bytes_.assign(bytes_.size(), std::byte{0xee}); }

private:
    std::vector<std::byte> bytes_;
    wire::Packet packet_;
};

void expect_equal(const wire::Packet& got, const wire::Packet& sent) {
    EXPECT_EQ(got.info, sent.info);
    EXPECT_EQ(got.bth.psn, sent.bth.psn);
    EXPECT_TRUE(std::ranges::equal(got.extension, sent.extension));
    EXPECT_TRUE(std::ranges::equal(got.payload, sent.payload));
}

class OutOfOrder : public testing::Test {
protected:
    bool hold(PacketNumber number, std::uint64_t seed = 2, std::size_t payload_size = 5) {
        const bool held = store.hold(kMissing, number, source.packet(seed, payload_size), kMtu);
        source.destroy();
        return held;
    }

    static constexpr std::size_t kBudget = 8 << 20;
    const PacketNumber kMissing = PacketNumber::first(Psn(0xff'ffff));
    HoldBudget budget{kBudget};
    OutOfOrderStore store{budget};
    OutOfOrderStore::Taken taken;
    Source source;
};

TEST_F(OutOfOrder, GivesBackWhatItKept) {
    EXPECT_TRUE(hold(kMissing + 1, 2, kMtu));
    EXPECT_TRUE(hold(kMissing + 7, 3, 0));
    EXPECT_FALSE(store.take(kMissing + 2, taken));
    ASSERT_TRUE(store.take(kMissing + 1, taken));
    expect_equal(taken.packet, source.packet(2, kMtu));
    EXPECT_EQ(store.first_from(kMissing), kMissing + 7);
    ASSERT_TRUE(store.take(kMissing + 7, taken));
    expect_equal(taken.packet, source.packet(3, 0));
    EXPECT_TRUE(store.empty());
}

TEST_F(OutOfOrder, KeepsTheFirstOfTwo) {
    EXPECT_TRUE(hold(kMissing + 1, 4));
    EXPECT_FALSE(hold(kMissing + 1, 6));
    ASSERT_TRUE(store.take(kMissing + 1, taken));
    expect_equal(taken.packet, source.packet(4, 5));
}

TEST_F(OutOfOrder, KeepsNothingThatIsTooFarOrTooLarge) {
    EXPECT_FALSE(hold(kMissing + kAheadMax)) << "nothing before it is here";
    std::uint32_t n = kAheadMax - 1;
    for (; n < kPackets - 1; n += kAheadMax) EXPECT_TRUE(hold(kMissing + n)) << n;
    EXPECT_TRUE(hold(kMissing + (kPackets - 1)) || n == kPackets - 1 + kAheadMax);
    EXPECT_TRUE(store.has(kMissing + (kPackets - 1)));
    EXPECT_FALSE(hold(kMissing + kPackets));
    EXPECT_FALSE(hold(kMissing + 2, 2, kMtu + 1));
    EXPECT_EQ(store.size(), kPackets / kAheadMax);
    EXPECT_FALSE(store.has(kMissing - 1)) << "it has the same place";
}

TEST_F(OutOfOrder, TellsHowFarRunsReach) {
    for (const std::uint32_t n : {3U, 4U, 5U, 100U, 101U}) EXPECT_TRUE(hold(kMissing + n));
    EXPECT_EQ(store.run_end(kMissing, false), kMissing + 3);
    EXPECT_EQ(store.run_end(kMissing + 3, true), kMissing + 6);
    EXPECT_EQ(store.run_end(kMissing + 6, false), kMissing + 100);
    EXPECT_EQ(store.run_end(kMissing + 100, true), store.end());
    EXPECT_EQ(store.end(), kMissing + 102);
}

TEST_F(OutOfOrder, TakesMemoryOnlyWhileItKeepsSomething) {
    EXPECT_EQ(budget.left(), kBudget);
    EXPECT_TRUE(hold(kMissing + 1));
    EXPECT_TRUE(hold(kMissing + 2));
    EXPECT_LT(budget.left(), kBudget - 2 * kMtu);
    EXPECT_TRUE(store.take(kMissing + 1, taken));
    store.drop_before(kMissing + 3);
    EXPECT_EQ(budget.left(), kBudget);
    EXPECT_TRUE(hold(kMissing + 1));
    store.clear();
    EXPECT_EQ(budget.left(), kBudget);
}

TEST_F(OutOfOrder, KeepsNothingWithoutABudget) {
    HoldBudget poor(1000);
    OutOfOrderStore small(poor);
    EXPECT_FALSE(small.hold(kMissing, kMissing + 1, source.packet(2, 5), kMtu));
    EXPECT_TRUE(small.empty());
    EXPECT_EQ(poor.left(), 1000U);
}

// One queue pair leaves a quarter of the budget to others, as far as it keeps more than its share.
TEST_F(OutOfOrder, LeavesAQuarterOfTheBudgetToOthers) {
    static_assert(kPackets > OutOfOrderStore::kPacketsOfOne);  // Unit tests have all PSNs.
    const auto kept_of = [this](std::size_t bytes) {
        HoldBudget shared(bytes);
        Source packets;
        OutOfOrderStore greedy(shared);
        std::uint32_t n = 1;
        while (greedy.hold(kMissing, kMissing + n, packets.packet(n, 5), kMtu)) ++n;
        EXPECT_EQ(greedy.size(), n - 1);
        return n - 1;
    };
    EXPECT_EQ(kept_of(std::size_t{1} << 30), kPackets - 1);
    EXPECT_EQ(kept_of(6 << 20), OutOfOrderStore::kPacketsOfOne);
    const std::uint32_t kept = kept_of(32 << 20);
    EXPECT_GT(kept, OutOfOrderStore::kPacketsOfOne);
    EXPECT_LT(kept, (24U << 20) / kMtu);
}

// Random calls, compared with a map.
TEST_F(OutOfOrder, DoesWhatAMapDoes) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        Prng random(seed);
        PacketNumber missing = kMissing;
        PacketNumber end = missing;
        std::map<PacketNumber, std::uint64_t> model;
        for (int step = 0; step < 500; ++step) {
            const PacketNumber number = missing + 1 + random.below(2 * kAheadMax);
            end = model.empty() ? missing : std::max(end, missing);
            const std::uint64_t what = random.below(100);
            if (what < 60) {
                const std::uint64_t content = random.below(1000);
                const bool keeps = number < end + kAheadMax && number - missing < kPackets &&
                                   !model.contains(number);
                if (keeps) {
                    model[number] = content;
                    end = std::max(end, number + 1);
                }
                ASSERT_EQ(store.hold(missing, number, source.packet(content, content), kMtu),
                          keeps);
            } else if (what < 80) {
                const auto found = model.find(number);
                ASSERT_EQ(store.take(number, taken), found != model.end());
                if (found == model.end()) continue;
                expect_equal(taken.packet, source.packet(found->second, found->second));
                model.erase(found);
            } else if (what < 99) {
                missing = missing + random.below(30);
                store.drop_before(missing + 1);
                model.erase(model.begin(), model.upper_bound(missing));
            } else {
                store.clear();
                model.clear();
            }
            ASSERT_EQ(store.size(), model.size());
            if (model.empty()) continue;
            ASSERT_EQ(store.first_from(missing), model.begin()->first);
            ASSERT_EQ(store.bounds().last, model.rbegin()->first);
        }
        store.clear();
        ASSERT_EQ(budget.left(), kBudget);
    }
}

}  // namespace
}  // namespace feroce::transport::rc::out_of_order_store_test
