#include "transport/rc/out_of_order_store.hpp"

#include <optional>

#include "base/assert.hpp"
#include "base/shortage.hpp"

namespace feroce::transport::rc {

bool OutOfOrderStore::has(PacketNumber number) const {
    const std::size_t place = place_of(number);
    return used_[place] && slots_[place].number == number;
}

bool OutOfOrderStore::hold(PacketNumber missing, PacketNumber number, const wire::Packet& packet,
                           std::size_t payload_max) {
    ASSERT(missing < number && payload_max <= kPayloadMax);
    if (number - missing >= kPackets || packet.payload.size() > payload_max) return false;
    const std::size_t place = place_of(number);
    if (used_[place]) return false;
    if (empty() && !take_memory(payload_max)) return false;
    ASSERT(wire::kExtensionMax + packet.payload.size() <= stride_);
    std::byte* const begin = memory_.get() + place * stride_;
    std::byte* const end = std::copy(packet.extension.begin(), packet.extension.end(), begin);
    std::copy(packet.payload.begin(), packet.payload.end(), end);
    Slot& slot = slots_[place];
    slot.number = number;
    slot.packet = packet;
    slot.packet.extension = {begin, packet.extension.size()};
    slot.packet.payload = {end, packet.payload.size()};
    used_.set(place);
    return true;
}

bool OutOfOrderStore::take(PacketNumber number, Taken& into) {
    if (!has(number)) return false;
    const wire::Packet& packet = slots_[place_of(number)].packet;
    std::byte* const begin = into.bytes.data();
    std::byte* const end = std::copy(packet.extension.begin(), packet.extension.end(), begin);
    std::copy(packet.payload.begin(), packet.payload.end(), end);
    into.packet = packet;
    into.packet.extension = {begin, packet.extension.size()};
    into.packet.payload = {end, packet.payload.size()};
    free_place(place_of(number));
    return true;
}

PacketNumber OutOfOrderStore::first_from(PacketNumber from) const {
    for (std::uint32_t i = 0; i < kPackets; ++i)
        if (has(from + i)) return from + i;
    ASSERT(false);
}

OutOfOrderStore::Bounds OutOfOrderStore::bounds() const {
    ASSERT(!empty());
    std::optional<Bounds> out;
    for (std::size_t place = 0; place < kPackets; ++place) {
        if (!used_[place]) continue;
        const PacketNumber number = slots_[place].number;
        if (!out) out = Bounds{number, number};
        out = Bounds{std::min(out->first, number), std::max(out->last, number)};
    }
    return *out;
}

void OutOfOrderStore::drop_before(PacketNumber number) {
    for (std::size_t place = 0; place < kPackets && !empty(); ++place)
        if (used_[place] && slots_[place].number < number) free_place(place);
}

void OutOfOrderStore::clear() {
    used_.reset();
    give_memory_back();
}

bool OutOfOrderStore::take_memory(std::size_t payload_max) {
    stride_ = wire::kExtensionMax + payload_max;
    const std::size_t bytes = kPackets * (stride_ + sizeof(Slot));
    if (!budget_.take(bytes)) return false;
    if (with_memory([this] {
            slots_ = std::make_unique<Slot[]>(kPackets);
            memory_ = std::make_unique_for_overwrite<std::byte[]>(kPackets * stride_);
        }))
        return true;
    slots_.reset();
    budget_.give_back(bytes);
    return false;
}

void OutOfOrderStore::free_place(std::size_t place) {
    used_.reset(place);
    if (used_.none()) give_memory_back();
}

void OutOfOrderStore::give_memory_back() {
    if (slots_ == nullptr) return;
    budget_.give_back(kPackets * (stride_ + sizeof(Slot)));
    slots_.reset();
    memory_.reset();
}

}  // namespace feroce::transport::rc
