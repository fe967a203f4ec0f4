// Copies between private bytes and a list of Sges, at any offset of the list: payload of packets
// out of and into the buffers of work requests. Keys are checked for the entries that are touched,
// each time, because the application may deregister between two packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "mem/memory.hpp"
#include "mem/sge.hpp"

namespace feroce::mem {

struct ListFault {
    Fault fault = Fault::None;
    std::size_t index = 0;  // The entry at fault; the list's size if it is too short.

    constexpr operator Fault() const { return fault; }
};

ListFault gather(const Memory& memory, PdId pd, std::span<const Sge> list, std::uint64_t offset,
                 ByteSpan into);
// Needs LocalWrite. Stops at the first fault; what was before it may have been written.
ListFault scatter(const Memory& memory, PdId pd, std::span<const Sge> list, std::uint64_t offset,
                  ByteView from);

}  // namespace feroce::mem
