// The memory of a client's session: a slot per permit for message and header, a staging area per
// permit for data that lies in memory which is not registered (made when first needed), and the
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
    ByteSpan header_slot(std::uint16_t permit);

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
    // That of the headers, which every request needs.
    const ibv_mr* headers() {
        if (headers_ == nullptr) headers_ = region(memory_.headers());
        return headers_;
    }
    void forget(AreaId id) { regions_.erase(id); }

private:
    SessionMemory& memory_;
    ibv_pd* pd_;
    const ibv_mr* headers_ = nullptr;  // In regions_; nullptr: not registered yet.
    std::map<AreaId, rdma::detail::Owned<ibv_mr, ibv_dereg_mr>> regions_;
};

}  // namespace feroce::rtrs
