// What a process leaves behind: real processes that die in every way, on a table of their own.
#include "port/estates.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace feroce::port {
namespace {

cm::Bond bond(std::uint32_t slot, std::uint32_t number) {
    return {.local_id = {slot << kCommIdLowBits | number},
            .remote_id = {0x0700'0000 + number},
            .remote_qpn = {0x07'0000},
            .local = Gid::from_v4(0x7f00'0001),
            .remote = Gid::from_v4(0x7f00'0002)};
}

class EstatesTest : public testing::Test {
protected:
    void SetUp() override { ASSERT_TRUE(table.create()); }

    // A process that owns a slot does this and ends as `die` wants.
    void live_and_die(SlotNumber slot, const std::function<void(host::Estate&)>& live,
                      const std::function<void()>& die) {
        const pid_t child = ::fork();
        if (child == 0) {
            if (!table.try_lock(slot)) ::_exit(3);
            estates.take(slot);
            const std::unique_ptr<host::Estate> estate = estates.open(slot, {});
            if (estate == nullptr) ::_exit(4);
            live(*estate);
            die();
            ::_exit(5);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) >= 3) << WEXITSTATUS(status);
    }
    std::vector<cm::Bond> inherit(const SlotSet& own = {}) {
        std::vector<cm::Bond> out;
        estates.inherit(own, out);
        return out;
    }
    static void be_killed() { ::kill(::getpid(), SIGKILL); }

    SlotTable table;
    Estates estates{table};
};

TEST_F(EstatesTest, AnHeirGetsEachBondOnce) {
    live_and_die(
        5,
        [](host::Estate& e) {
            e.keep(bond(5, 1));
            e.keep(bond(5, 2));
            e.keep(bond(5, 3));
            e.forget({5u << kCommIdLowBits | 2});
        },
        be_killed);
    EXPECT_TRUE(estates.waiting({}));
    EXPECT_EQ(inherit(), (std::vector{bond(5, 1), bond(5, 3)}));
    EXPECT_FALSE(estates.waiting({}));
    EXPECT_TRUE(inherit().empty());
}

TEST_F(EstatesTest, ExecAndExitCountAsDeath) {
    const auto keep = [](host::Estate& e) { e.keep(bond(6, 1)); };
    live_and_die(6, keep, [] { ::execl("/bin/true", "true", nullptr); });
    EXPECT_EQ(inherit().size(), 1u);
    live_and_die(6, keep, [] { ::_exit(0); });
    EXPECT_EQ(inherit().size(), 1u);
}

TEST_F(EstatesTest, WhoEndedItsConnectionsLeavesNothing) {
    live_and_die(
        5,
        [](host::Estate& e) {
            e.keep(bond(5, 1));
            e.keep(bond(5, 2));
            e.forget({5u << kCommIdLowBits | 1});
            e.forget({5u << kCommIdLowBits | 2});
        },
        be_killed);
    EXPECT_EQ(table.bonds(5), 0u);
    EXPECT_FALSE(estates.waiting({}));
}

TEST_F(EstatesTest, TheNextOwnerOfTheSlotIsHeir) {
    live_and_die(
        5, [](host::Estate& e) { e.keep(bond(5, 1)); }, be_killed);
    ASSERT_TRUE(table.try_lock(5));
    estates.take(5);
    const SlotSet own = SlotSet::of(5);
    EXPECT_TRUE(estates.waiting(own));
    const std::unique_ptr<host::Estate> estate = estates.open(5, {});
    ASSERT_NE(estate, nullptr);
    estate->keep(bond(5, 9));  // On the place of the old one.
    EXPECT_EQ(inherit(own), (std::vector{bond(5, 1)}));
    EXPECT_TRUE(inherit(own).empty());
    table.unlock(5);  // As if we had died.
    EXPECT_EQ(inherit(), (std::vector{bond(5, 9)}));
}

TEST_F(EstatesTest, TheLivingKeepTheirs) {
    int pipes[2];
    ASSERT_EQ(::pipe(pipes), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const std::unique_ptr<host::Estate> estate = estates.open(5, {});
        if (table.try_lock(5) && estate != nullptr) estate->keep(bond(5, 1));
        (void)!::write(pipes[1], "x", 1);
        ::pause();
    }
    char byte;
    ASSERT_EQ(::read(pipes[0], &byte, 1), 1);
    EXPECT_EQ(table.bonds(5), 1u);
    EXPECT_FALSE(estates.waiting({}));
    EXPECT_TRUE(inherit().empty());
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(inherit().size(), 1u);
}

TEST_F(EstatesTest, WhatDoesNotFitIsLeftOut) {
    live_and_die(
        5,
        [](host::Estate& e) {
            for (std::uint32_t i = 1; i <= SlotTable::kBondsPerSlot + 5; ++i) e.keep(bond(5, i));
            e.forget({5u << kCommIdLowBits | 7});
            e.keep(bond(5, 100'000));  // On the place of the one that has gone.
        },
        be_killed);
    const std::vector<cm::Bond> all = inherit();
    EXPECT_EQ(all.size(), std::size_t{SlotTable::kBondsPerSlot});
    EXPECT_EQ(all[6], bond(5, 100'000));
}

TEST_F(EstatesTest, NonsenseIsNotBelieved) {
    cm::Bond other_slot = bond(6, 1);
    cm::Bond to_group = bond(5, 2);
    to_group.remote = Gid::from_v4(0xe000'0001);
    cm::Bond nowhere = bond(5, 3);
    nowhere.remote = Gid{};
    cm::Bond wide = bond(5, 4);
    wide.remote_qpn = {0x0100'0000};
    live_and_die(
        5,
        [&](host::Estate& e) {
            for (const cm::Bond& b : {other_slot, to_group, nowhere, wide, bond(5, 5)}) e.keep(b);
            table.set_bonds(5, ~std::uint32_t{0});  // Beyond the end of the part.
        },
        be_killed);
    EXPECT_EQ(inherit(), (std::vector{bond(5, 5)}));
}

}  // namespace
}  // namespace feroce::port
