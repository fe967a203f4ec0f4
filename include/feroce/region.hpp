// Views of registered memory. LocalRegion: bytes of this process that the device may use;
// RemoteRegion: bytes of a peer, an address that is no pointer here. The types do not mix.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace feroce::rdma {

class LocalRegion {
public:
    LocalRegion() = default;
    LocalRegion(void* start, std::uint32_t bytes, std::uint32_t lkey)
        : sge_{reinterpret_cast<std::uint64_t>(start), bytes, lkey} {}
    // Memory that is not registered, for work that is inlined.
    static LocalRegion unregistered(std::span<const std::byte> data) {
        return {const_cast<std::byte*>(data.data()), static_cast<std::uint32_t>(data.size()), 0};
    }

    std::byte* data() const { return reinterpret_cast<std::byte*>(sge_.addr); }
    std::uint32_t size() const { return sge_.length; }
    std::span<std::byte> bytes() const { return {data(), size()}; }
    LocalRegion first(std::uint32_t count) const { return subregion(0, count); }
    LocalRegion subregion(std::uint64_t offset, std::uint32_t count) const {
        return {data() + offset, count, sge_.lkey};
    }
    const ibv_sge& raw() const { return sge_; }

private:
    ibv_sge sge_{};
};
static_assert(sizeof(LocalRegion) == sizeof(ibv_sge));  // So a span of them is a list of SGEs.

struct RemoteRegion {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint32_t rkey = 0;
    std::uint32_t reserved = 0;  // Instead of padding: regions travel to peers as they are.

    RemoteRegion subregion(std::uint64_t offset, std::uint64_t count) const {
        return {address + offset, count, rkey, 0};
    }
    friend bool operator==(const RemoteRegion&, const RemoteRegion&) = default;
};

// One region or several, as work gathers from or scatters to. Several are not copied: they live
// until the work is posted.
class Regions {
public:
    Regions(const LocalRegion& one) : one_(one), count_(1) {}
    template <class List>
    requires std::is_convertible_v<const List&, std::span<const LocalRegion>> Regions(
        const List& many) {
        const std::span<const LocalRegion> list = many;
        many_ = list.data();
        count_ = list.size();
    }

    std::span<const LocalRegion> list() const { return {many_ == nullptr ? &one_ : many_, count_}; }
    ibv_sge* sges() const {  // Verbs only reads them.
        return const_cast<ibv_sge*>(reinterpret_cast<const ibv_sge*>(list().data()));
    }
    int count() const { return static_cast<int>(count_); }
    std::uint64_t total() const {
        std::uint64_t sum = 0;
        for (const LocalRegion& region : list()) sum += region.size();
        return sum;
    }

private:
    LocalRegion one_;
    const LocalRegion* many_ = nullptr;
    std::size_t count_ = 0;
};

}  // namespace feroce::rdma
