// See session_memory.hpp.
#include "rtrs/session_memory.hpp"

#include <iterator>

#include "base/assert.hpp"

namespace feroce::rtrs {

SessionMemory::SessionMemory(const Geometry& geometry, std::pmr::memory_resource& memory)
    : geometry_(geometry),
      resource_(memory),
      headers_(std::size_t{geometry.queue_depth} * geometry.max_header_size, &memory),
      headers_id_(++last_id_),
      staging_(geometry.queue_depth) {
    areas_[headers_id_] = headers_;
}

ByteSpan SessionMemory::header_slot(std::uint16_t permit) {
    return ByteSpan(headers_).subspan(std::size_t{permit} * geometry_.max_header_size,
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

}  // namespace feroce::rtrs
