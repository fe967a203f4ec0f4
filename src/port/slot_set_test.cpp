#include "port/slot_set.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace feroce::port {
namespace slot_set_test {

TEST(SlotSet, WalksSlotsOfAllWords) {
    const std::vector<std::uint32_t> slots{1, 63, 64, 127, 128, 255, 256, kSlots - 1};
    SlotSet set;
    EXPECT_TRUE(set.empty());
    for (const std::uint32_t slot : slots) set.add(slot);
    std::vector<std::uint32_t> walked;
    set.for_each([&](std::uint32_t slot) { walked.push_back(slot); });
    EXPECT_EQ(walked, slots);
    for (const std::uint32_t slot : slots) {
        EXPECT_TRUE(set.has(slot));
        EXPECT_FALSE(set.has(slot - 1) && slot % 64 == 1) << "of the same place in a word";
        set.remove(slot);
    }
    EXPECT_TRUE(set.empty());
}

TEST(SlotSet, WithoutAndBoth) {
    SlotSet a = SlotSet::of(3), b = SlotSet::of(300);
    a |= b;
    EXPECT_EQ(a - b, SlotSet::of(3));
    EXPECT_EQ(a & b, b);
    EXPECT_TRUE((b & SlotSet::of(44)).empty()) << "300 is 44 within its word";
}

TEST(SharedSlotSet, ChangesBitsForThemselves) {
    SharedSlotSet shared;
    shared.add(70);
    shared.add(SlotSet::of(6));
    EXPECT_TRUE(shared.has(70));
    shared.remove(SlotSet::of(70));
    EXPECT_FALSE(shared.has(70));
    EXPECT_EQ(shared.load(std::memory_order_relaxed), SlotSet::of(6));
}

TEST(Slots, AreEnoughForMembersAndForGuests) {
    std::uint32_t members = 0, guests = 0;
    for (std::uint32_t slot = 0; slot < 2 * kSlots; ++slot) {
        members += is_member_slot(slot) ? 1 : 0;
        guests += is_guest_slot(slot) ? 1 : 0;
        EXPECT_FALSE(is_member_slot(slot) && is_guest_slot(slot)) << slot;
    }
    EXPECT_EQ(members, kMemberSlots);
    EXPECT_GE(members, 250u);
    EXPECT_GE(guests, 64u);
    EXPECT_EQ(members + guests + 1, kSlots);
}

}  // namespace slot_set_test
}  // namespace feroce::port
