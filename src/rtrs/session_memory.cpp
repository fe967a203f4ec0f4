// See session_memory.hpp.
#include "rtrs/session_memory.hpp"

#include <bit>
#include <iterator>

#include "base/assert.hpp"

namespace feroce::rtrs {

SessionMemory::SessionMemory(const Geometry& geometry, std::pmr::memory_resource& memory)
    : geometry_(geometry),
      resource_(memory),
      headers_(std::size_t{geometry.queue_depth} * (kShortSlot + geometry.max_header_size),
               &memory),
      headers_id_(++last_id_),
      staging_(geometry.queue_depth) {
    areas_[headers_id_] = headers_;
}

ByteSpan SessionMemory::header_slot(std::uint16_t permit, std::size_t size) {
    const ByteSpan all(headers_);
    if (size <= kShortSlot) return all.subspan(permit * kShortSlot, kShortSlot);
    return all.subspan(
        geometry_.queue_depth * kShortSlot + std::size_t{permit} * geometry_.max_header_size,
        geometry_.max_header_size);
}

SessionMemory::Staging SessionMemory::staging(std::uint16_t permit) {
    OwnArea& own = staging_[permit];
    if (!own.bytes) {
        own.bytes =
            std::make_unique<std::pmr::vector<std::byte>>(geometry_.max_io_size, &resource_);
        own.id = ++last_id_;
        areas_[own.id] = *own.bytes;
    }
    return {own.id, *own.bytes};
}

AreaId SessionMemory::add(ByteSpan area) {
    areas_[++last_id_] = area;
    by_address_[area.data()] = {last_id_, area.size()};
    return last_id_;
}

void SessionMemory::remove(AreaId id) {
    const auto found = areas_.find(id);
    ASSERT(found != areas_.end());
    by_address_.erase(found->second.data());
    areas_.erase(found);
}

std::optional<AreaId> SessionMemory::find(ByteView bytes) const {
    const auto behind = by_address_.upper_bound(bytes.data());
    if (behind == by_address_.begin()) return std::nullopt;
    const auto& [start, area] = *std::prev(behind);
    const auto offset = static_cast<std::size_t>(bytes.data() - start);
    if (offset > area.size || area.size - offset < bytes.size()) return std::nullopt;
    return area.id;
}

const ibv_mr* RegisteredAreas::region(AreaId id) {
    auto& region = regions_[id];
    if (!region) {
        const ByteSpan area = memory_.area(id);
        region.reset(ibv_reg_mr(pd_, area.data(), area.size(),
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    }
    return region.get();
}

RegisteredAreas::Known& RegisteredAreas::known_of(ByteView bytes) {
    constexpr std::uint64_t kScatter = 0x9e37'79b9'7f4a'7c15;  // The golden ratio's.
    constexpr int kShift = 64 - std::countr_zero(kKnown);
    const auto page = reinterpret_cast<std::uintptr_t>(bytes.data()) >> 12;
    return known_[page * kScatter >> kShift];
}

const ibv_mr* RegisteredAreas::region_of(ByteView bytes) {
    Known& known = known_of(bytes);
    const std::byte* const end = bytes.data() + bytes.size();
    if (known.begin <= bytes.data() && end <= known.end) return known.region;
    const auto id = memory_.find(bytes);
    const ibv_mr* const found = id ? region(*id) : nullptr;
    if (found == nullptr) return nullptr;
    const ByteSpan area = memory_.area(*id);
    known = {area.data(), area.data() + area.size(), found};
    return found;
}

void RegisteredAreas::forget(AreaId id) {
    const auto found = regions_.find(id);
    if (found == regions_.end()) return;
    for (Known& known : known_)
        if (known.region == found->second.get()) known = {};
    regions_.erase(found);
}

}  // namespace feroce::rtrs
