// The memory of a client's session: two slots per permit for message and header (a short one, side
// by side with those of other permits, and one for the longest), a staging area per permit for data
// that lies in memory which is not registered (made when first needed), and the
// buffers that the user has registered. Every path registers these areas with its own device:
// RegisteredAreas, which dies with the path's incarnation.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "feroce/memory.hpp"
#include "rtrs/geometry.hpp"

namespace feroce::rtrs {

using AreaId = std::uint64_t;  // Never used again.

class SessionMemory {
public:
    SessionMemory(const Geometry& geometry, std::pmr::memory_resource& memory);

    AreaId headers() const { return headers_id_; }
    // For a message and header of `size` bytes together.
    ByteSpan header_slot(std::uint16_t permit, std::size_t size);

    // The staging area of a permit: its id and bytes.
    struct Staging {
        AreaId id = 0;
        ByteSpan bytes;
    };
    Staging staging(std::uint16_t permit);

    AreaId add(ByteSpan area);  // The user's; stays until removed.
    void remove(AreaId id);
    // The area that holds all of this; nullopt: it is not registered.
    std::optional<AreaId> find(ByteView bytes) const;
    ByteSpan area(AreaId id) const { return areas_.at(id); }

private:
    // Two cache lines: most requests are shorter. Slots of max_header_size lie a page apart, so
    // that the caches, which choose a place by the lower bits of an address, hold few of them.
    static constexpr std::size_t kShortSlot = 128;

    Geometry geometry_;
    std::pmr::memory_resource& resource_;
    std::pmr::vector<std::byte> headers_;
    AreaId last_id_ = 0;
    AreaId headers_id_;
    std::map<AreaId, ByteSpan> areas_;
    struct UsersArea {
        AreaId id = 0;
        std::size_t size = 0;
    };
    std::map<const std::byte*, UsersArea> by_address_;  // By where they begin.
    struct OwnArea {
        AreaId id = 0;
        std::unique_ptr<std::pmr::vector<std::byte>> bytes;
    };
    std::vector<OwnArea> staging_;  // By permit; empty until needed.
};

class RegisteredAreas {
public:
    RegisteredAreas(SessionMemory& memory, ibv_pd* pd) : memory_(memory), pd_(pd) {}

    // Registers at first use; nullptr if the device refuses.
    const ibv_mr* region(AreaId id);
    // Of the user's area that holds all of this; nullptr also if there is none.
    const ibv_mr* region_of(ByteView bytes);
    // That of the headers, which every request needs.
    const ibv_mr* headers() {
        if (headers_ == nullptr) headers_ = region(memory_.headers());
        return headers_;
    }
    void forget(AreaId id);

private:
    // Where the data of a request lay, and the area that it was in: programs use their buffers
    // again, and trees of many buffers are in no cache.
    struct Known {
        const std::byte* begin = nullptr;
        const std::byte* end = nullptr;
        const ibv_mr* region = nullptr;
    };
    static constexpr std::size_t kKnown = 512;  // Twice the usual queue depth; a power of two.
    Known& known_of(ByteView bytes);

    SessionMemory& memory_;
    ibv_pd* pd_;
    const ibv_mr* headers_ = nullptr;  // In regions_; nullptr: not registered yet.
    std::map<AreaId, rdma::detail::Owned<ibv_mr, ibv_dereg_mr>> regions_;
    std::vector<Known> known_ = std::vector<Known>(kKnown);  // By known_of().
};

}  // namespace feroce::rtrs
