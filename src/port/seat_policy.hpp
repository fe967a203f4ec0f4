// SeatPolicy: which of the guest slots a user gets. Pure: slots, user and time come in, slots go
// out; relay_server.hpp locks them and tells the guest.
//
// Whatever a user holds is charged to it, and so is what it held of late: a slot that it left rests
// in its name, so that coming and going does not get it more than its share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "port/slot_table.hpp"

namespace feroce::port {

// A slot that lost the process which relayed for it is kept for its guest this long.
inline constexpr Duration kReturnTime = std::chrono::seconds(5);
// Before a slot goes from one user to another: longer than a peer goes on retrying, so that nothing
// that was meant for the one reaches the other.
inline constexpr Duration kQuarantine = std::chrono::seconds(60);

// What is known of a slot without its lock.
struct GuestSlot {
    std::uint32_t number = 0;
    SlotTable::Seat seat;
    bool held = false;  // A process relays for it.
};

// Whether a guest of that user may have a slot that nobody relays for. `again`: the guest says that
// it is the one that had it.
bool may_take(const SlotTable::Seat& seat, std::uint32_t user, bool again, Instant now);

// Whether a guest of that user, with that token, sits there: then it may change its relay, even if
// the one that it has still holds the slot's lock. A guest to which the answer of its last relay
// did not come knows the token of before.
bool may_take_over(const SlotTable::Seat& seat, std::uint32_t user, std::uint64_t token);

// Those slots that the user may have, the best first. `wish`: the slot it had, 0 for none.
std::vector<std::uint32_t> slots_for(std::span<const GuestSlot> slots, std::uint32_t user,
                                     std::uint32_t wish, Instant now);

// Whether the user may have one more slot, were there a free one.
bool has_share_left(std::span<const GuestSlot> slots, std::uint32_t user, Instant now);

// Whether one more chunk may be added for guests, where there are `chunks` with so many descriptors
// each, and this process may have `in_flight_max` in flight, as the kernel counts those that are
// parked (socket_lot.hpp). Half of that is left to members: to add slots, and to take newcomers in.
bool may_grow_for_guests(std::uint32_t chunks, std::uint32_t chunk_descriptors,
                         std::uint64_t in_flight_max);

// How often guests of a user may sit down, because that is the dearest thing they can ask for.
class SeatingRate {
public:
    bool allows(std::uint32_t user, Instant now);

private:
    // Enough for a user's guests to come back all at once, several times.
    static constexpr std::uint32_t kBurst = 4 * kSeatsPerUser;
    static constexpr Duration kPause = std::chrono::milliseconds(100);  // For each one beyond.
    static constexpr std::size_t kUsersMax = 64;

    // When all that the user did is forgiven; each time moves it on by one pause.
    std::map<std::uint32_t, Instant> forgiven_;
};

// How much a guest may say over one connection: a question, some wishes, and now and then a word to
// see whether its relay still reads (relay_watch.hpp).
class MessageRate {
public:
    bool allows(Instant now) {
        forgiven_ = std::max(forgiven_, now);
        if (forgiven_ - now > kBurst * kPause) return false;
        forgiven_ += kPause;
        return true;
    }

private:
    static constexpr std::uint32_t kBurst = 16;
    static constexpr Duration kPause = std::chrono::milliseconds(100);

    Instant forgiven_{};  // When all that was said is forgiven.
};

}  // namespace feroce::port
