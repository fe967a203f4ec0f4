#include "transport/rc/out_of_order_store.hpp"

#include <bit>
#include <optional>

#include "base/assert.hpp"
#include "base/shortage.hpp"

namespace feroce::transport::rc {

bool OutOfOrderStore::has(PacketNumber number) const {
    const std::size_t place = place_of(number);
    return is_used(place) && slot(place).number == number;
}

bool OutOfOrderStore::hold(PacketNumber missing, PacketNumber number, const wire::Packet& packet,
                           std::size_t payload_max) {
    ASSERT(missing < number && payload_max <= kPayloadMax);
    if (number - missing >= kPackets || packet.payload.size() > payload_max) return false;
    if (!empty() && number - std::min(low_, number) >= kPackets) return false;
    const PacketNumber ahead = empty() ? missing : std::max(end_, missing);
    if (ahead + kAheadMax <= number) return false;
    const std::size_t place = place_of(number);
    if (is_used(place)) return false;
    if (size_ >= kPacketsOfOne && !budget_.is_quarter_left()) return false;
    if (empty()) stride_ = wire::kExtensionMax + payload_max;
    Chunk& chunk = chunks_[place / kWord];
    if (chunk.used == 0 && !take_memory(chunk)) return false;
    ASSERT(wire::kExtensionMax + packet.payload.size() <= stride_);
    std::byte* const begin = chunk.memory.get() + place % kWord * stride_;
    std::byte* const end = std::copy(packet.extension.begin(), packet.extension.end(), begin);
    std::copy(packet.payload.begin(), packet.payload.end(), end);
    Slot& kept = slot(place);
    kept.number = number;
    kept.packet = packet;
    kept.packet.extension = {begin, packet.extension.size()};
    kept.packet.payload = {end, packet.payload.size()};
    chunk.used |= std::uint64_t{1} << place % kWord;
    low_ = empty() ? number : std::min(low_, number);
    end_ = std::max(ahead, number + 1);
    ++size_;
    return true;
}

bool OutOfOrderStore::take(PacketNumber number, Taken& into) {
    if (!has(number)) return false;
    const wire::Packet& packet = slot(place_of(number)).packet;
    std::byte* const begin = into.bytes.data();
    std::byte* const end = std::copy(packet.extension.begin(), packet.extension.end(), begin);
    std::copy(packet.payload.begin(), packet.payload.end(), end);
    into.packet = packet;
    into.packet.extension = {begin, packet.extension.size()};
    into.packet.payload = {end, packet.payload.size()};
    free_place(place_of(number));
    return true;
}

PacketNumber OutOfOrderStore::run_end(PacketNumber from, bool kept) const {
    for (std::uint32_t n = 0; n < kPackets;) {
        const std::size_t place = place_of(from + n);
        const std::uint64_t used = chunks_[place / kWord].used;
        const std::uint64_t ends = (kept ? ~used : used) >> place % kWord;
        if (ends != 0) return from + n + static_cast<std::uint32_t>(std::countr_zero(ends));
        n += kWord - static_cast<std::uint32_t>(place % kWord);
    }
    return from + kPackets;
}

template <class F>
void OutOfOrderStore::for_each_place(F&& see) const {
    for (std::size_t i = 0; i < chunks_.size(); ++i)
        for (std::uint64_t left = chunks_[i].used; left != 0; left &= left - 1)
            see(i * kWord + static_cast<std::size_t>(std::countr_zero(left)));
}

OutOfOrderStore::Bounds OutOfOrderStore::bounds() const {
    ASSERT(!empty());
    std::optional<Bounds> out;
    for_each_place([&](std::size_t place) {
        const PacketNumber number = slot(place).number;
        if (!out) out = Bounds{number, number};
        out = Bounds{std::min(out->first, number), std::max(out->last, number)};
    });
    return *out;
}

void OutOfOrderStore::drop_before(PacketNumber number) {
    while (!empty()) {
        low_ = first_from(low_);
        if (number <= low_) return;
        free_place(place_of(low_));
    }
}

void OutOfOrderStore::clear() {
    for (Chunk& chunk : chunks_) give_memory_back(chunk);
    size_ = 0;
}

bool OutOfOrderStore::take_memory(Chunk& chunk) {
    if (!budget_.take(chunk_bytes())) return false;
    if (with_memory([&] {
            chunk.slots = std::make_unique<Slot[]>(kWord);
            chunk.memory = std::make_unique_for_overwrite<std::byte[]>(kWord * stride_);
        }))
        return true;
    chunk.slots.reset();
    budget_.give_back(chunk_bytes());
    return false;
}

void OutOfOrderStore::free_place(std::size_t place) {
    Chunk& chunk = chunks_[place / kWord];
    chunk.used &= ~(std::uint64_t{1} << place % kWord);
    --size_;
    if (chunk.used == 0) give_memory_back(chunk);
}

void OutOfOrderStore::give_memory_back(Chunk& chunk) {
    chunk.used = 0;
    if (chunk.slots == nullptr) return;
    budget_.give_back(chunk_bytes());
    chunk.slots.reset();
    chunk.memory.reset();
}

}  // namespace feroce::transport::rc
