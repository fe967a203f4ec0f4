#include "port/backlog.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace feroce::port {
namespace {

using namespace std::chrono_literals;

const Instant kStart{1h};

Letter letter(std::uint8_t number) {
    Letter out{};
    out.message.mad[0] = std::byte{number};
    return out;
}

// The mailboxes of other processes; a name without room is one that is full.
class World {
public:
    Instant retry(Instant now) {
        return backlog.retry(now, [this](const std::string& name, std::uint32_t, const Letter& l) {
            ++tries;
            if (room[name] < 0) return Posted::Nobody;
            if (room[name] == 0) return Posted::Full;
            --room[name];
            got.push_back(std::to_integer<int>(l.message.mad[0]));
            return Posted::Taken;
        });
    }
    // For so long, whenever there is something to do.
    void run(Duration time) {
        Instant now = kStart;
        while (now < kStart + time) now = retry(now);
    }

    Backlog backlog;
    std::map<std::string, int> room;
    std::vector<int> got;
    int tries = 0;
};

TEST(Backlog, WaitsForNothingWhenThereIsNothing) {
    World world;
    EXPECT_EQ(world.retry(kStart), kNever);
}

TEST(Backlog, LettersArriveInTheirOrderOnceThereIsRoom) {
    World world;
    for (std::uint8_t i = 0; i < 5; ++i) EXPECT_TRUE(world.backlog.add("a", 0, letter(i), kStart));
    Instant now = world.retry(kStart);
    EXPECT_TRUE(world.got.empty());
    world.room["a"] = 3;
    now = world.retry(now);
    world.room["a"] = 3;
    EXPECT_EQ(world.retry(now), kNever);
    EXPECT_EQ(world.got, (std::vector<int>{0, 1, 2, 3, 4}));
    EXPECT_FALSE(world.backlog.waits_for("a"));
}

// A process that is stopped must not keep this one busy, however much waits for it.
TEST(Backlog, AFullMailboxIsTriedSeldomAndNotForEver) {
    World world;
    for (std::uint8_t i = 0; i < 100; ++i) world.backlog.add("a", 0, letter(i), kStart);
    world.run(1h);
    EXPECT_LE(world.tries, 32);
    EXPECT_TRUE(world.backlog.empty());
}

TEST(Backlog, AMailboxThatIsGoneIsForgotten) {
    World world;
    world.room["a"] = -1;
    for (std::uint8_t i = 0; i < 100; ++i) world.backlog.add("a", 0, letter(i), kStart);
    world.run(10ms);
    EXPECT_EQ(world.tries, 1);
    EXPECT_TRUE(world.backlog.empty());
}

TEST(Backlog, TakesSoMuchForOneAndSoMuchForAll) {
    Backlog backlog;
    int for_one = 0, in_all = 0;
    for (int i = 0; i < 10'000; ++i) for_one += backlog.add("a", 0, letter(0), kStart) ? 1 : 0;
    EXPECT_EQ(for_one, 128);
    for (int i = 0; i < 10'000; ++i)
        in_all += backlog.add("b" + std::to_string(i % 50), 0, letter(0), kStart) ? 1 : 0;
    EXPECT_EQ(for_one + in_all, 1024);
}

TEST(Backlog, ATurnIsBounded) {
    World world;
    for (int box = 0; box < 8; ++box)
        for (std::uint8_t i = 0; i < 100; ++i)
            world.backlog.add(std::to_string(box), 0, letter(i), kStart);
    for (int box = 0; box < 8; ++box) world.room[std::to_string(box)] = 1000;
    const Instant next = world.retry(kStart + 1s);
    EXPECT_EQ(world.got.size(), 64u);
    EXPECT_LE(next, kStart + 1s + 1ms);
    world.run(2s);
    EXPECT_EQ(world.got.size(), 800u);
}

}  // namespace
}  // namespace feroce::port
