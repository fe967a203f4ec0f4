#include "port/packet_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.hpp"

namespace feroce::port {
namespace {

class PacketRing : public testing::Test {
protected:
    static std::byte pattern(std::uint64_t number, std::size_t i) {
        return static_cast<std::byte>(number * 31 + i);
    }
    // Grows when it must.
    bool send(std::uint64_t number, std::uint32_t size) {
        ByteSpan room = writer.place(path, size);
        if (room.empty() && writer.is_small()) {
            writer.grow();
            room = writer.place(path, size);
        }
        for (std::size_t i = 0; i < room.size(); ++i) room[i] = pattern(number, i);
        return !room.empty();
    }
    void expect(std::uint64_t number, std::uint32_t size) {
        const auto packet = reader.next();
        ASSERT_TRUE(packet) << number;
        ASSERT_EQ(packet->bytes.size(), size) << number;
        for (std::size_t i = 0; i < size; ++i)
            ASSERT_EQ(packet->bytes[i], pattern(number, i)) << number << ", byte " << i;
    }

    std::unique_ptr<detail::RingMemory> memory = std::make_unique<detail::RingMemory>();
    RingWriter writer{memory.get()};
    RingReader reader{memory.get()};
    std::uint32_t path = *writer.path({});
};

TEST_F(PacketRing, NothingIsSeenBeforeItIsPublished) {
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(writer.publish());
    ASSERT_TRUE(send(1, 40));
    EXPECT_FALSE(reader.waiting());
    EXPECT_TRUE(writer.publish());
    EXPECT_TRUE(reader.waiting());
    expect(1, 40);
    EXPECT_FALSE(reader.next());
}

TEST_F(PacketRing, WhatIsTakenBackIsNeverSeen) {
    for (const std::uint32_t size : {40U, 4096U, kRingPacketMax}) {
        ASSERT_TRUE(send(1, size));
        ASSERT_TRUE(send(2, size));
        writer.take_back();
        ASSERT_TRUE(send(3, 4096));
        writer.publish();
        expect(1, size);
        expect(3, 4096);
        EXPECT_FALSE(reader.next());
        reader.release();
    }
}

TEST_F(PacketRing, TheWriterSeesWhatIsUnread) {
    writer.grow();
    EXPECT_EQ(writer.unread().packets, 0U);
    ASSERT_TRUE(send(1, 4096));
    ASSERT_TRUE(send(2, 4096));
    writer.publish();
    EXPECT_EQ(writer.unread().packets, 2U);
    EXPECT_EQ(writer.unread().bytes, 2 * 4096U);
    ASSERT_TRUE(reader.next());  // That it has grown, and the first.
    EXPECT_EQ(writer.unread().packets, 2U) << "until it is let go of";
    reader.release();
    EXPECT_EQ(writer.unread().packets, 1U);
    EXPECT_EQ(writer.unread().bytes, 4096U);
}

TEST_F(PacketRing, WhatALapPassesOverIsNotUnread) {
    writer.grow();
    for (std::uint64_t i = 0; i < 400; ++i) {
        ASSERT_TRUE(send(i, 60'000));
        writer.publish();
        ASSERT_EQ(writer.unread().bytes, 60'032U) << i;
        ASSERT_TRUE(reader.next());
        reader.release();
        ASSERT_EQ(writer.unread().bytes, 0U) << i;
    }
}

// The reader is another process, whose words may be anything.
TEST_F(PacketRing, AReaderThatTakesItsWordBackTakesNoRoom) {
    writer.grow();
    for (std::uint64_t i = 0; i < detail::kRingLap / 4096; ++i) {
        ASSERT_TRUE(send(i, 4096));
        writer.publish();
        ASSERT_TRUE(reader.next());
        reader.release();
    }
    ASSERT_EQ(writer.unread().packets, 0U);
    ASSERT_TRUE(writer.has_room(kRingPacketMax));
    for (const std::uint64_t word : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        memory->read.bytes = word;
        memory->read.packets = word;
        EXPECT_FALSE(writer.place(path, kRingPacketMax).empty());
        writer.take_back();
        EXPECT_EQ(writer.unread().packets, 0U);
    }
}

TEST_F(PacketRing, ASmallOneIsFullSoonerAndGrowsInOrder) {
    EXPECT_TRUE(writer.is_small());
    EXPECT_FALSE(writer.has_room(kRingPacketMax));
    std::uint64_t count = 0;
    while (!writer.place(path, 40).empty()) ++count;
    EXPECT_EQ(count, detail::kSmallRingSlots - 1);
    for (; count > 0; --count) writer.take_back();
    while (writer.has_room(4096)) ASSERT_TRUE(send(count++, 4096));
    EXPECT_EQ(count, detail::kSmallRingBytes / 4096);
    const auto* const large = reinterpret_cast<const std::byte*>(memory->slots.data());
    const std::byte* const end = large + sizeof memory->slots + sizeof memory->bytes;
    EXPECT_TRUE(std::all_of(large, end, [](std::byte b) { return b == std::byte{0}; }));
    writer.grow();
    EXPECT_FALSE(writer.is_small());
    ASSERT_TRUE(send(count++, 40));
    ASSERT_TRUE(send(count++, kRingPacketMax));
    writer.publish();
    for (std::uint64_t i = 0; i + 2 < count; ++i) expect(i, 4096);
    expect(count - 2, 40);
    expect(count - 1, kRingPacketMax);
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.dead());
}

TEST_F(PacketRing, OneThatHasGrownAndSaysNothingMoreIsEmpty) {
    writer.grow();
    EXPECT_TRUE(reader.waiting());
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.waiting());
    EXPECT_FALSE(reader.dead());
}

TEST_F(PacketRing, RoomThatIsPromisedIsThere) {
    writer.grow();
    std::uint64_t count = 0;
    while (writer.has_room(kRingPacketMax)) ASSERT_TRUE(send(count++, kRingPacketMax));
    EXPECT_FALSE(send(count, kRingPacketMax));
    EXPECT_TRUE(writer.has_room(40));
    writer.publish();
    for (std::uint64_t i = 0; i < count; ++i) expect(i, kRingPacketMax);
    reader.release();
    EXPECT_TRUE(writer.has_room(kRingPacketMax));
}

TEST_F(PacketRing, SizesAroundTheLimits) {
    constexpr std::uint32_t kSizes[] = {1, 111, 112, 113, 4096, 65535, kRingPacketMax};
    for (std::uint64_t lap = 0; lap < 40; ++lap) {
        for (const std::uint32_t size : kSizes) ASSERT_TRUE(send(lap, size)) << size;
        writer.publish();
        for (const std::uint32_t size : kSizes) expect(lap, size);
        reader.release();
    }
}

TEST_F(PacketRing, OnlyTheBeginningIsUsedWhileTheReaderKeepsUp) {
    writer.grow();
    std::size_t most = 0;
    for (std::uint64_t i = 0; i < 4096; ++i) {
        ASSERT_TRUE(send(i, 4096));
        writer.publish();
        const auto packet = reader.next();
        ASSERT_TRUE(packet);
        const auto at = static_cast<std::size_t>(packet->bytes.data() - memory->bytes.data());
        most = std::max(most, at + packet->bytes.size());
        ASSERT_EQ(packet->bytes[5], pattern(i, 5));
        reader.release();
    }
    EXPECT_EQ(most, detail::kRingLap);
}

// With a reader that is behind by what a window of fixed size lets be in flight, nothing is refused
// because laps end early; nor is anything later, when more was in flight for once.
TEST_F(PacketRing, EarlyLapsRefuseNothingThatAWindowLetsPass) {
    constexpr std::size_t kWindow = 448 * 1024;
    writer.grow();
    Prng random(3);
    std::vector<std::pair<std::uint64_t, std::uint32_t>> sent;
    std::size_t taken = 0, in_flight = 0;
    const auto take = [&] {
        const auto [number, size] = sent[taken++];
        expect(number, size);
        in_flight -= size;
        reader.release();
    };
    for (std::uint64_t i = 0; i < 1000; ++i) {
        const bool wide = random.below(4) == 0;
        const auto size = wide ? kRingPacketMax : 4096 + static_cast<std::uint32_t>(i % 64);
        while (in_flight >= kWindow || (in_flight > 0 && random.below(8) == 0)) take();
        ASSERT_TRUE(send(i, size)) << "packet " << i << ", in flight " << in_flight;
        writer.publish();
        sent.emplace_back(i, size);
        in_flight += size;
        if (i != 700) continue;
        std::uint64_t number = i;
        while (send(++number, 4096)) {
            sent.emplace_back(number, 4096);
            in_flight += 4096;
        }
        writer.publish();
        EXPECT_GT(in_flight, 512 * 1024);
    }
    while (taken < sent.size()) take();
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.dead());
}

TEST_F(PacketRing, AFullRingTakesNothingUntilItIsRead) {
    for (const std::uint32_t size : {40u, 4096u}) {
        std::uint64_t count = 0;
        while (send(count, size)) ++count;
        writer.publish();
        EXPECT_FALSE(send(count, size)) << "nothing was read";
        for (std::uint64_t i = 0; i < count; ++i) expect(i, size);
        EXPECT_FALSE(send(count, size)) << "the reader has not released it";
        reader.release();
        EXPECT_TRUE(send(count, size));
        writer.publish();
        expect(count, size);
        reader.release();
    }
}

// Of any sizes, over many laps, with a reader that is behind by any number of packets.
TEST_F(PacketRing, RandomTrafficComesInOrder) {
    Prng random(7);
    std::vector<std::uint32_t> sizes;
    std::uint64_t read = 0;
    for (int turn = 0; turn < 4'000; ++turn) {
        for (std::uint64_t n = random.below(30); n > 0; --n) {
            const auto size = static_cast<std::uint32_t>(
                random.below(8) == 0 ? 1 + random.below(9000) : 1 + random.below(150));
            if (!send(sizes.size(), size)) break;
            sizes.push_back(size);
        }
        writer.publish();
        for (std::uint64_t n = random.below(30); n > 0 && read < sizes.size(); --n, ++read)
            expect(read, sizes[read]);
        if (HasFatalFailure()) return;
        if (random.below(3) == 0) reader.release();
    }
    EXPECT_GT(sizes.size(), 4u * detail::kRingSlots);
}

TEST_F(PacketRing, TellsThePathOfEachPacket) {
    writer.grow();
    std::vector<RingPath> paths(detail::kRingPaths);  // The first is that of the fixture.
    for (std::size_t i = 0; i < paths.size(); ++i)
        paths[i].traffic_class = static_cast<std::uint8_t>(i);
    for (const RingPath& each : paths) {
        const auto number = writer.path(each);
        ASSERT_TRUE(number);
        EXPECT_EQ(writer.path(each), number) << "known by now";
        ASSERT_FALSE(writer.place(*number, 40).empty());
    }
    RingPath further;
    further.traffic_class = 200;
    EXPECT_FALSE(writer.has_room_for(further));
    EXPECT_FALSE(writer.path(further)) << "there is no room for one more";
    EXPECT_TRUE(writer.has_room_for(paths.back()));
    writer.publish();
    for (const RingPath& each : paths) EXPECT_EQ(reader.next()->path, each);
}

TEST_F(PacketRing, AWriterThatLostItsMindEndsTheRing) {
    struct Damage {
        std::uint32_t size;
        std::uint32_t path;
    };
    for (const Damage& damage : {Damage{0, 0}, Damage{kRingPacketMax + 1, 0}, Damage{~0u, 0},
                                 Damage{40, detail::kRingPaths}, Damage{40, ~0u}}) {
        const auto fresh = std::make_unique<detail::RingMemory>();
        RingWriter mad(fresh.get());
        RingReader sound(fresh.get());
        mad.grow();
        ASSERT_FALSE(mad.place(*mad.path({}), 40).empty());
        fresh->slots[0].size = damage.size;
        fresh->slots[0].path = damage.path;
        mad.publish();
        EXPECT_FALSE(sound.next());
        EXPECT_TRUE(sound.dead());
        EXPECT_FALSE(sound.waiting());
    }
}

TEST_F(PacketRing, ASmallOneHasNoLargePackets) {
    ASSERT_TRUE(send(1, 200));
    memory->small_slots[0].size = detail::kSmallRingBytes + 1;
    writer.publish();
    EXPECT_FALSE(reader.next());
    EXPECT_TRUE(reader.dead());
}

// Whatever is in the memory, the reader stays inside it and ends.
TEST_F(PacketRing, NoiseIsReadWithinBounds) {
    Prng random(3);
    for (int round = 0; round < 20; ++round) {
        const auto fill = [&random](auto& slots) {
            auto* const words = reinterpret_cast<std::uint32_t*>(slots.data());
            for (std::size_t i = 0; i < sizeof slots / sizeof *words; ++i)
                words[i] = static_cast<std::uint32_t>(random.below(4) == 0 ? random.next() : 1);
        };
        fill(memory->small_slots);
        fill(memory->slots);
        if (round % 2 == 0) memory->small_slots[0].size = 0;  // It has grown.
        RingReader victim(memory.get());
        std::size_t bytes = 0;
        while (const auto packet = victim.next())
            for (const std::byte b : packet->bytes) bytes += std::to_integer<std::size_t>(b) + 1;
        EXPECT_GE(bytes, 0u);
    }
}

// Packets that are left behind are none of the ring's: they are found where they are looked for.
TEST_F(PacketRing, WhatIsLeftBehindIsThereUntilItIsTakenBack) {
    std::array<std::byte, transport::kAckSize> bytes{};
    EXPECT_FALSE(reader.left_behind(0));
    for (std::uint32_t i = 0; i < detail::kRingLegacies; ++i) {
        bytes[0] = static_cast<std::byte>(i);
        ASSERT_TRUE(writer.leave_behind(path, bytes));
        EXPECT_FALSE(reader.waiting()) << "nobody is told of it";
    }
    EXPECT_FALSE(writer.leave_behind(path, bytes)) << "there is no more room";
    for (std::uint32_t i = 0; i < detail::kRingLegacies; ++i) {
        const auto packet = reader.left_behind(i);
        ASSERT_TRUE(packet);
        EXPECT_EQ(packet->bytes.size(), bytes.size());
        EXPECT_EQ(packet->bytes[0], static_cast<std::byte>(i));
        EXPECT_EQ(packet->packets, 1U);
    }
    EXPECT_FALSE(reader.left_behind(detail::kRingLegacies));
    writer.take_legacies_back();
    EXPECT_FALSE(reader.left_behind(0));
    ASSERT_TRUE(writer.leave_behind(path, bytes));
    EXPECT_TRUE(reader.left_behind(0));
    EXPECT_FALSE(reader.left_behind(1)) << "of before";
}

// A writer that ended between any two of its writes leaves only what it has counted.
TEST_F(PacketRing, WhatWasNotCountedIsNotLeftBehind) {
    const std::array<std::byte, transport::kAckSize> bytes{};
    ASSERT_TRUE(writer.leave_behind(path, bytes));
    ASSERT_TRUE(writer.leave_behind(path, bytes));
    memory->legacy_count = 1;
    EXPECT_TRUE(reader.left_behind(0));
    EXPECT_FALSE(reader.left_behind(1));
}

TEST_F(PacketRing, WhatIsLeftBehindIsBounded) {
    const std::array<std::byte, transport::kAckSize> bytes{};
    ASSERT_TRUE(writer.leave_behind(path, bytes));
    memory->legacy_count = ~0U;
    EXPECT_TRUE(reader.left_behind(0));
    EXPECT_TRUE(reader.left_behind(detail::kRingLegacies - 1));
    EXPECT_FALSE(reader.left_behind(detail::kRingLegacies));
    memory->legacies[0].path = detail::kRingPaths;
    EXPECT_FALSE(reader.left_behind(0));
}

TEST_F(PacketRing, TwoThreads) {
    constexpr std::uint64_t kPackets = 20'000;
    const auto size_of = [](std::uint64_t i) {
        return static_cast<std::uint32_t>(1 + i * 7 % 5000);
    };
    std::thread sending([&] {
        for (std::uint64_t i = 0; i < kPackets;) {
            if (send(i, size_of(i))) {
                writer.publish();
                ++i;
            } else {
                std::this_thread::yield();
            }
        }
    });
    for (std::uint64_t i = 0; i < kPackets && !HasFatalFailure();) {
        if (reader.waiting()) {
            expect(i, size_of(i));
            if (i++ % 16 == 0) reader.release();
        } else {
            reader.release();
            std::this_thread::yield();
        }
    }
    sending.join();
}

}  // namespace
}  // namespace feroce::port
