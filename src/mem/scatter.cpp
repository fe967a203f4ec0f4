#include "mem/scatter.hpp"

#include <algorithm>

#include "mem/touch.hpp"

namespace feroce::mem {

namespace {

// Calls copy(slice, done) for each touched piece, where done counts the bytes before it.
template <class Copy>
ListFault walk(const Memory& memory, PdId pd, std::span<const Sge> list, std::uint64_t offset,
               std::uint64_t size, AccessSet need, Copy copy) {
    // Most lists are one piece, which holds it all.
    if (list.size() == 1 && offset <= list[0].length && size <= list[0].length - offset &&
        size > 0 && list[0].address + offset >= list[0].address) [[likely]] {
        const Lookup found = memory.local(pd, list[0].lkey, list[0].address + offset, size, need);
        if (found.fault != Fault::None) return {found.fault, 0};
        return copy(found.slice, 0) ? ListFault{} : ListFault{Fault::Unmapped, 0};
    }
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < list.size() && done < size; ++i) {
        const Sge& sge = list[i];
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::uint64_t piece = std::min(sge.length - offset, size - done);
        // A sum that wraps could land in the region again, so it is refused here.
        if (sge.address + offset < sge.address) return {Fault::OutOfBounds, i};
        const Lookup found = memory.local(pd, sge.lkey, sge.address + offset, piece, need);
        if (found.fault != Fault::None) return {found.fault, i};
        if (!copy(found.slice, done)) return {Fault::Unmapped, i};
        done += piece;
        offset = 0;
    }
    return done == size ? ListFault{} : ListFault{Fault::OutOfBounds, list.size()};
}

}  // namespace

ListFault gather(const Memory& memory, PdId pd, std::span<const Sge> list, std::uint64_t offset,
                 ByteSpan into) {
    return walk(memory, pd, list, offset, into.size(), AccessSet{},
                [&](Slice slice, std::uint64_t done) {
                    return read_memory(slice, into.subspan(done, slice.length));
                });
}

ListFault scatter(const Memory& memory, PdId pd, std::span<const Sge> list, std::uint64_t offset,
                  ByteView from) {
    return walk(memory, pd, list, offset, from.size(), Access::LocalWrite,
                [&](Slice slice, std::uint64_t done) {
                    return write_memory(slice, from.subspan(done, slice.length));
                });
}

}  // namespace feroce::mem
