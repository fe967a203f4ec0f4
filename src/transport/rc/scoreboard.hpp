// Scoreboard: what a requester was told of the packets behind its oldest (GapList): which of them
// the peer keeps, and which are to be sent again. Lives from the first that it is told until all of
// that is acknowledged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/assert.hpp"
#include "base/packet_number.hpp"
#include "base/time.hpp"
#include "transport/rc/out_of_order_store.hpp"

namespace feroce::transport::rc {

class Scoreboard {
public:
    // What a peer keeps lies in so many numbers at most. A board begins with fewer.
    static constexpr std::uint32_t kPacketsMax = OutOfOrderStore::kPackets;
    static constexpr std::uint32_t kPacketsAtFirst = std::min<std::uint32_t>(4096, kPacketsMax);

    explicit Scoreboard(PacketNumber una) : begin_(una), end_(una), due_from_(una) {}

    // So many numbers, from the oldest on, have a place.
    std::uint32_t size() const { return size_; }
    void grow() {  // Twice as many. May throw.
        ASSERT(size_ < kPacketsMax);
        auto slots = std::make_unique<Slot[]>(std::size_t{2} * size_);
        for (PacketNumber number = begin_; number < end_; number = number + 1)
            slots[number.psn().raw() % (2 * size_)] = at(number);
        slots_ = std::move(slots);
        size_ *= 2;
    }

    // One past the last that something is known of.
    PacketNumber end() const { return end_; }
    // Bytes of those that are not in the network: kept, or lost and not sent again yet.
    std::uint32_t bytes_out() const { return bytes_out_; }
    bool is_kept(PacketNumber number) const { return knows(number) && at(number).kept; }
    bool keeps_any() const {
        PacketNumber number = begin_;
        while (number < end_ && !at(number).kept) number = number + 1;
        return number < end_;
    }
    PacketNumber kept_end() const {  // One past the last that is kept; the first number if none is.
        PacketNumber number = end_;
        while (begin_ < number && !at(number - 1).kept) number = number - 1;
        return number;
    }
    bool is_due(PacketNumber number) const { return knows(number) && at(number).due; }

    // The bytes that leave the network by that; none if it is no news. `number` is not before what
    // was forgotten, and less than size() behind it.
    std::uint32_t note_kept(PacketNumber number, std::uint32_t bytes) {
        Slot& slot = use(number);
        if (slot.kept) return 0;
        slot.kept = true;
        slot.due = false;
        return take_out(slot, bytes);
    }
    // Kept or lost, which is not known yet. Likewise the bytes.
    std::uint32_t note_arrived(PacketNumber number, std::uint32_t bytes) {
        return take_out(use(number), bytes);
    }
    // It is to be sent again, unless that was done after `before`.
    bool is_missing(PacketNumber number, Instant before) {
        const Slot& slot = use(number);
        return !slot.kept && !slot.due && slot.repeated_at <= before;
    }
    std::uint32_t note_missing(PacketNumber number, std::uint32_t bytes) {
        Slot& slot = use(number);
        slot.due = true;
        due_from_ = std::min(due_from_, number);
        return take_out(slot, bytes);
    }
    bool was_repeated(PacketNumber number) const { return repeated_at(number) != Instant{}; }
    bool was_repeated_once(PacketNumber number) const {
        return was_repeated(number) && !at(number).repeated_twice;
    }
    Instant repeated_at(PacketNumber number) const {
        return knows(number) ? at(number).repeated_at : Instant{};
    }
    // The lowest that is to be sent again; end() if none is.
    PacketNumber next_due() {
        while (due_from_ < end_ && !at(due_from_).due) due_from_ = due_from_ + 1;
        return due_from_;
    }
    // The bytes that are in the network again by that.
    std::uint32_t note_repeated(PacketNumber number, Instant now) {
        Slot& slot = use(number);
        slot.repeated_twice = slot.repeated_at != Instant{};
        slot.repeated_at = now;
        slot.due = false;
        return put_back(slot);
    }
    // The oldest counts as in the network, whatever became of it.
    std::uint32_t count_oldest(PacketNumber una) { return knows(una) ? put_back(at(una)) : 0; }
    // All before it are acknowledged. Returns the bytes of those that were not in the network.
    std::uint32_t forget_before(PacketNumber number) {
        std::uint32_t bytes = 0;
        for (; begin_ < std::min(number, end_); begin_ = begin_ + 1) {
            bytes += at(begin_).bytes_out;
            at(begin_) = Slot{};
        }
        begin_ = std::max(begin_, number);
        end_ = std::max(end_, begin_);
        due_from_ = std::max(due_from_, begin_);
        bytes_out_ -= bytes;
        return bytes;
    }

private:
    struct Slot {
        Instant repeated_at{};  // Its beginning: never.
        std::uint32_t bytes_out = 0;
        bool kept = false;
        bool due = false;
        bool repeated_twice = false;
    };

    std::uint32_t take_out(Slot& slot, std::uint32_t bytes) {
        if (slot.bytes_out != 0) return 0;
        slot.bytes_out = bytes;
        bytes_out_ += bytes;
        return bytes;
    }
    std::uint32_t put_back(Slot& slot) {
        bytes_out_ -= slot.bytes_out;
        return std::exchange(slot.bytes_out, 0);
    }
    bool knows(PacketNumber number) const { return begin_ <= number && number < end_; }
    Slot& at(PacketNumber number) { return slots_[number.psn().raw() % size_]; }
    const Slot& at(PacketNumber number) const { return slots_[number.psn().raw() % size_]; }
    Slot& use(PacketNumber number) {
        ASSERT(begin_ <= number && number - begin_ < size_);
        end_ = std::max(end_, number + 1);
        return at(number);
    }

    PacketNumber begin_;
    PacketNumber end_;
    PacketNumber due_from_;  // Nothing before it is due.
    std::uint32_t bytes_out_ = 0;
    std::uint32_t size_ = kPacketsAtFirst;
    std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(kPacketsAtFirst);
};

}  // namespace feroce::transport::rc
