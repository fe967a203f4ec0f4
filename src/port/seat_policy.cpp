#include "port/seat_policy.hpp"

#include <algorithm>

namespace feroce::port {
namespace {

using State = SlotTable::Guest;

Duration empty_for(const SlotTable::Seat& seat, Instant now) {
    return now - Instant(std::chrono::nanoseconds(seat.since_ns));
}

bool is_charged(const GuestSlot& slot, std::uint32_t user, Instant now) {
    if (slot.seat.guest == State::Never || slot.seat.user != user) return false;
    return slot.held || empty_for(slot.seat, now) <= kQuarantine;
}

std::uint32_t charged_slots(std::span<const GuestSlot> slots, std::uint32_t user, Instant now) {
    return static_cast<std::uint32_t>(
        std::count_if(slots.begin(), slots.end(),
                      [&](const GuestSlot& slot) { return is_charged(slot, user, now); }));
}

}  // namespace

bool has_share_left(std::span<const GuestSlot> slots, std::uint32_t user, Instant now) {
    return charged_slots(slots, user, now) < kSeatsPerUser;
}

bool may_take(const SlotTable::Seat& seat, std::uint32_t user, bool again, Instant now) {
    if (seat.guest == State::Never) return true;
    const Duration empty = empty_for(seat, now);
    if (seat.guest == State::Seated) return again && seat.user == user;
    if (seat.user != user) return empty > kQuarantine;
    return again || seat.guest == State::Left || empty > kReturnTime;
}

bool may_take_over(const SlotTable::Seat& seat, std::uint32_t user, std::uint64_t token) {
    return seat.guest == State::Seated && seat.user == user && token != 0 &&
           (seat.token == token || seat.former_token == token);
}

std::vector<std::uint32_t> slots_for(std::span<const GuestSlot> slots, std::uint32_t user,
                                     std::uint32_t wish, Instant now) {
    const std::uint32_t charged = charged_slots(slots, user, now);
    std::vector<GuestSlot> fit;
    for (const GuestSlot& slot : slots) {
        const bool has_room =
            is_charged(slot, user, now) ? charged <= kSeatsPerUser : charged < kSeatsPerUser;
        if (has_room && !slot.held && may_take(slot.seat, user, slot.number == wish, now))
            fit.push_back(slot);
    }
    // What it had, then what it left, then what has been empty for longest.
    std::stable_sort(fit.begin(), fit.end(), [&](const GuestSlot& a, const GuestSlot& b) {
        const auto rank = [&](const GuestSlot& slot) {
            return slot.number == wish ? 0 : is_charged(slot, user, now) ? 1 : 2;
        };
        return rank(a) != rank(b) ? rank(a) < rank(b) : a.seat.since_ns < b.seat.since_ns;
    });
    std::vector<std::uint32_t> out;
    out.reserve(fit.size());
    for (const GuestSlot& slot : fit) out.push_back(slot.number);
    return out;
}

bool may_grow_for_guests(std::uint32_t chunks, std::uint32_t chunk_descriptors,
                         std::uint64_t in_flight_max) {
    return (std::uint64_t{chunks} + 1) * chunk_descriptors <= in_flight_max / 2;
}

bool SeatingRate::allows(std::uint32_t user, Instant now) {
    std::erase_if(forgiven_, [now](const auto& entry) { return entry.second <= now; });
    const auto found = forgiven_.find(user);
    if (found == forgiven_.end() && forgiven_.size() >= kUsersMax) return false;
    Instant& forgiven = forgiven_.try_emplace(user, now).first->second;
    if (forgiven - now > kBurst * kPause) return false;
    forgiven += kPause;
    return true;
}

}  // namespace feroce::port
