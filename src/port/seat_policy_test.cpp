#include "port/seat_policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace feroce::port::seat_policy_test {
namespace {

using namespace std::chrono_literals;
using State = SlotTable::Guest;

constexpr std::uint32_t kAnn = 1000, kBob = 1001;
const Instant kStart{1h};

// The guest slots of a group, with as many relays as one likes.
class Table {
public:
    Table() {
        for (std::uint32_t slot = 0; slot < kSlots; ++slot)
            if (is_guest_slot(slot)) slots.push_back({slot, {}, false});
    }
    GuestSlot& at(std::uint32_t number) {
        return *std::find_if(slots.begin(), slots.end(),
                             [number](const GuestSlot& slot) { return slot.number == number; });
    }
    void set(std::uint32_t number, State state, std::uint32_t user, Instant since, bool held) {
        at(number) = {number, {state, user, since.time_since_epoch().count(), 0}, held};
    }
    // As the relay does it; 0 if there is none.
    std::uint32_t sit(std::uint32_t user, Instant now, std::uint32_t wish = 0) {
        const std::vector<std::uint32_t> fit = slots_for(slots, user, wish, now);
        if (fit.empty()) return 0;
        set(fit[0], State::Seated, user, now, true);
        return fit[0];
    }
    void leave(std::uint32_t number, Instant now) {
        set(number, State::Left, at(number).seat.user, now, false);
    }
    std::uint32_t sit_as_often_as_possible(std::uint32_t user, Instant now) {
        std::uint32_t count = 0;
        while (count < kSlots && sit(user, now) != 0) ++count;
        return count;
    }

    std::vector<GuestSlot> slots;
};

TEST(SeatPolicy, AUserGetsItsShareAndNoMore) {
    Table table;
    EXPECT_EQ(table.sit_as_often_as_possible(kAnn, kStart), kSeatsPerUser);
    EXPECT_EQ(table.sit_as_often_as_possible(kBob, kStart), kSeatsPerUser);
}

TEST(SeatPolicy, ComingAndGoingLeavesOthersTheirShare) {
    Table table;
    Instant now = kStart;
    for (int round = 0; round < 100; ++round, now += 300ms) {
        EXPECT_EQ(table.sit_as_often_as_possible(kAnn, now), kSeatsPerUser) << round;
        for (GuestSlot& slot : table.slots)
            if (slot.held) table.leave(slot.number, now);
    }
    EXPECT_EQ(table.sit_as_often_as_possible(kBob, now), kSeatsPerUser);
}

TEST(SeatPolicy, ASlotRestsBeforeItGoesToAnotherUser) {
    Table table;
    table.slots = {{61, {State::Left, kAnn, kStart.time_since_epoch().count(), 0}, false}};
    EXPECT_EQ(table.sit(kBob, kStart + kQuarantine), 0u);
    EXPECT_EQ(table.sit(kBob, kStart + kQuarantine + 1ns), 61u);
}

TEST(SeatPolicy, AUserMayHaveItsOwnSlotAgainAtOnce) {
    Table table;
    const std::uint32_t slot = table.sit(kAnn, kStart);
    table.leave(slot, kStart);
    EXPECT_EQ(table.sit(kAnn, kStart), slot);
}

TEST(SeatPolicy, ASlotThatLostItsRelayWaitsForItsGuest) {
    Table table;
    table.slots = {{61, {State::Orphaned, kAnn, kStart.time_since_epoch().count(), 0}, false}};
    EXPECT_TRUE(slots_for(table.slots, kAnn, 0, kStart + 1s).empty()) << "not its guest";
    EXPECT_TRUE(slots_for(table.slots, kBob, 61, kStart + 1s).empty()) << "not its user";
    EXPECT_EQ(slots_for(table.slots, kAnn, 61, kStart + 1s).size(), 1u);
    EXPECT_EQ(slots_for(table.slots, kAnn, 0, kStart + kReturnTime + 1ns).size(), 1u);
}

TEST(SeatPolicy, AGuestWithItsUsersLastSeatComesBack) {
    Table table;
    ASSERT_EQ(table.sit_as_often_as_possible(kAnn, kStart), kSeatsPerUser);
    const auto last = std::find_if(table.slots.rbegin(), table.slots.rend(),
                                   [](const GuestSlot& slot) { return slot.held; });
    last->held = false;  // Its relay died.
    EXPECT_EQ(table.sit(kAnn, kStart + 1s, last->number), last->number);
}

TEST(SeatPolicy, NobodyGetsWhatIsHeld) {
    Table table;
    table.slots = {{61, {State::Seated, kAnn, kStart.time_since_epoch().count(), 0}, true}};
    EXPECT_TRUE(slots_for(table.slots, kAnn, 61, kStart).empty());
    EXPECT_TRUE(slots_for(table.slots, kBob, 0, kStart + 1h).empty());
}

TEST(SeatingRate, StopsOneUserAndNotTheOther) {
    SeatingRate rate;
    int allowed = 0;
    for (int i = 0; i < 100'000; ++i) allowed += rate.allows(kAnn, kStart + i * 10us) ? 1 : 0;
    constexpr int kBurst = 4 * kSeatsPerUser;
    EXPECT_GE(allowed, kBurst);
    EXPECT_LE(allowed, kBurst + 11);  // One second has passed.
    EXPECT_TRUE(rate.allows(kBob, kStart + 1s));
    EXPECT_TRUE(rate.allows(kAnn, kStart + 1min));
}

TEST(SeatPolicy, OnlyTheGuestItselfChangesItsRelay) {
    const SlotTable::Seat seat{State::Seated, kAnn, 0, 7};
    EXPECT_TRUE(may_take_over(seat, kAnn, 7));
    EXPECT_FALSE(may_take_over(seat, kAnn, 8));
    EXPECT_FALSE(may_take_over(seat, kBob, 7));
    EXPECT_FALSE(may_take_over({State::Orphaned, kAnn, 0, 0}, kAnn, 0)) << "0 is no token";
    EXPECT_FALSE(may_take_over({State::Left, kAnn, 0, 7}, kAnn, 7));
}

// The relay that gave it another token was stopped before the answer came.
TEST(SeatPolicy, AGuestThatDoesNotKnowItsTokenYetIsKnownByTheOneBefore) {
    const SlotTable::Seat seat{State::Seated, kAnn, 0, 7, 5};
    EXPECT_TRUE(may_take_over(seat, kAnn, 5));
    EXPECT_TRUE(may_take_over(seat, kAnn, 7));
    EXPECT_FALSE(may_take_over(seat, kBob, 5));
    EXPECT_FALSE(may_take_over({State::Seated, kAnn, 0, 7, 0}, kAnn, 0)) << "0 is no token";
}

TEST(MessageRate, LetsAGuestSayAWordNowAndThenForEver) {
    MessageRate rate;
    Instant now = kStart;
    for (int i = 0; i < 1000; ++i, now += 200ms) EXPECT_TRUE(rate.allows(now)) << i;
    int said = 0;
    while (said < 1000 && rate.allows(now)) ++said;
    EXPECT_LT(said, 20);
    EXPECT_TRUE(rate.allows(now + 1s));
}

// 64 guests by the usual limit of 1024 open files, and never more than half of any limit.
TEST(SeatPolicy, GuestsLeaveHalfOfTheDescriptorsInFlightToMembers) {
    EXPECT_TRUE(may_grow_for_guests(15, 2 * kChunkSlots, 1024));
    EXPECT_FALSE(may_grow_for_guests(16, 2 * kChunkSlots, 1024));
    EXPECT_TRUE(may_grow_for_guests(kChunks - 1, kChunkSlots, 1024)) << "without IPv6";
    EXPECT_FALSE(may_grow_for_guests(4, 2 * kChunkSlots, 256));
    EXPECT_TRUE(may_grow_for_guests(kChunks - 1, 2 * kChunkSlots, ~std::uint64_t{0}));
}

}  // namespace
}  // namespace feroce::port::seat_policy_test
