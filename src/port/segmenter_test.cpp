// Whatever the kernel refuses, and wherever: every packet is sent once, whole and in its order.
#include "port/segmenter.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/random.hpp"

namespace feroce::port {
namespace segmenter_test {
namespace {

using Cutting = Segmenter::Cutting;
using transport::TransmitRun;

// Runs over one arena: the number of a byte is its place there.
struct Runs {
    struct Shape {
        std::uint32_t packets, size;
        std::uint32_t last_size;
    };
    explicit Runs(const std::vector<Shape>& shapes) : arena(65536) {
        std::size_t used = 0;
        for (const Shape& shape : shapes) {
            TransmitRun run;
            run.packet_count = shape.packets;
            run.segment_size = shape.packets == 1 ? shape.last_size : shape.size;
            run.bytes = ByteSpan(arena).subspan(
                used, std::size_t{shape.packets - 1} * shape.size + shape.last_size);
            used += run.bytes.size();
            runs.push_back(run);
        }
    }

    // A send as run, first byte within it, size and packets.
    std::string words(const Send& send) const {
        return std::to_string(send.run - runs.data()) + ":" +
               std::to_string(send.bytes.data() - send.run->bytes.data()) + "+" +
               std::to_string(send.bytes.size()) + "/" + std::to_string(send.packets);
    }
    std::vector<std::string> upcoming(const Segmenter& segmenter) const {
        std::array<Send, 16> room;
        std::vector<std::string> out;
        for (const Send& send : segmenter.upcoming(room)) out.push_back(words(send));
        return out;
    }

    std::vector<std::byte> arena;
    std::vector<TransmitRun> runs;
};

using Words = std::vector<std::string>;

TEST(Segmenter, LeavesRunsWholeForTheKernel) {
    const Runs runs({{1, 64, 64}, {3, 100, 40}, {2, 50, 50}});
    const Segmenter segmenter(runs.runs, Cutting::ByKernel);
    EXPECT_EQ(runs.upcoming(segmenter), (Words{"0:0+64/1", "1:0+240/3", "2:0+100/2"}));
}

TEST(Segmenter, CutsRunsIntoPackets) {
    const Runs runs({{1, 64, 64}, {3, 100, 40}, {2, 50, 50}});
    const Segmenter segmenter(runs.runs, Cutting::Here);
    EXPECT_EQ(runs.upcoming(segmenter), (Words{"0:0+64/1", "1:0+100/1", "1:100+100/1", "1:200+40/1",
                                               "2:0+50/1", "2:50+50/1"}));
}

TEST(Segmenter, TellsTheLongestPacketOfASend) {
    const Runs runs({{3, 100, 40}, {3, 100, 40}});
    Segmenter segmenter(runs.runs, Cutting::ByKernel);
    segmenter.cut_next();
    std::array<Send, 4> room;
    const std::span<const Send> sends = segmenter.upcoming(room);
    EXPECT_EQ(sends[0].packet_bytes(), 100u);
    EXPECT_EQ(sends[2].packet_bytes(), 40u);
    EXPECT_EQ(sends[3].packet_bytes(), 100u);
}

TEST(Segmenter, GivesNoMoreThanThereIsRoomFor) {
    const Runs runs({{5, 100, 40}});
    Segmenter segmenter(runs.runs, Cutting::Here);
    std::array<Send, 2> room;
    EXPECT_EQ(segmenter.upcoming(room).size(), 2u);
    segmenter.advance(2);
    EXPECT_EQ(segmenter.upcoming(room).size(), 2u);
    segmenter.advance(2);
    EXPECT_EQ(segmenter.upcoming(room).size(), 1u);
    segmenter.advance(1);
    EXPECT_TRUE(segmenter.finished());
    EXPECT_TRUE(segmenter.upcoming(room).empty());
}

TEST(Segmenter, CutsOneRunAndLeavesTheOthers) {
    const Runs runs({{2, 64, 64}, {2, 100, 40}, {2, 50, 50}});
    Segmenter segmenter(runs.runs, Cutting::ByKernel);
    segmenter.advance(1);
    segmenter.cut_next();
    EXPECT_EQ(runs.upcoming(segmenter), (Words{"1:0+100/1", "1:100+40/1", "2:0+100/2"}));
    segmenter.advance(1);
    EXPECT_EQ(runs.upcoming(segmenter), (Words{"1:100+40/1", "2:0+100/2"}));
    segmenter.advance(1);
    EXPECT_EQ(runs.upcoming(segmenter), (Words{"2:0+100/2"}));
}

TEST(Segmenter, CutsAllFromWhereItIs) {
    const Runs runs({{2, 64, 64}, {2, 100, 40}, {2, 50, 50}});
    Segmenter segmenter(runs.runs, Cutting::ByKernel);
    segmenter.advance(1);
    segmenter.cut_all();
    EXPECT_EQ(runs.upcoming(segmenter),
              (Words{"1:0+100/1", "1:100+40/1", "2:0+50/1", "2:50+50/1"}));
}

// A kernel that takes some, refuses some and blames segments for it, at random.
void send_all(const Runs& runs, Segmenter segmenter, Prng& random) {
    std::size_t bytes = 0;
    while (!segmenter.finished()) {
        std::array<Send, 4> room;
        const std::span<const Send> sends = segmenter.upcoming(room);
        ASSERT_FALSE(sends.empty());
        const std::size_t taken = 1 + random.below(sends.size());
        for (const Send& send : sends.first(taken)) {
            ASSERT_EQ(send.bytes.data(), runs.arena.data() + bytes);  // Next in order, no gap.
            bytes += send.bytes.size();
            ASSERT_TRUE(send.packets == send.run->packet_count || send.packets == 1);
        }
        segmenter.advance(taken);
        if (random.chance(0.3)) segmenter.cut_next();
        if (random.chance(0.05)) segmenter.cut_all();
    }
    const TransmitRun& last = runs.runs.back();
    EXPECT_EQ(runs.arena.data() + bytes, last.bytes.data() + last.bytes.size());
}

TEST(Segmenter, SendsEveryByteOnceInItsOrder) {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        SCOPED_TRACE(seed);
        Prng random(seed);
        std::vector<Runs::Shape> shapes;
        for (std::uint64_t i = 1 + random.below(8); i > 0; --i) {
            const auto size = static_cast<std::uint32_t>(20 + random.below(200));
            shapes.push_back({static_cast<std::uint32_t>(1 + random.below(6)), size,
                              static_cast<std::uint32_t>(20 + random.below(size - 19))});
        }
        const Runs runs(shapes);
        send_all(runs, Segmenter(runs.runs, Cutting::ByKernel), random);
        send_all(runs, Segmenter(runs.runs, Cutting::Here), random);
    }
}

}  // namespace
}  // namespace segmenter_test
}  // namespace feroce::port
