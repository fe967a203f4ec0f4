// The reader of a ring whose memory holds any bytes: it stays inside the memory, ends, and what it
// returns is within its limits. Bytes change between two looks, as a hostile writer may do it.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "port/packet_ring.hpp"

using feroce::ByteView;
using namespace feroce::port;

namespace {

template <class Slots>
void fill(Slots& slots, ByteView input) {
    auto* const bytes = reinterpret_cast<std::byte*>(slots.data());
    for (std::size_t at = 0; at < sizeof slots && !input.empty(); at += input.size())
        std::copy_n(input.begin(), std::min(input.size(), sizeof slots - at), bytes + at);
}

// The large area is seen only if the small one says so.
void fill(detail::RingMemory& memory, ByteView input) {
    memory.legacy_count = input.empty() ? 0 : std::to_integer<std::uint32_t>(input[0]);
    fill(memory.legacies, input);
    fill(memory.small_slots, input);
    fill(memory.slots, input);
}

std::size_t read_all(RingReader& reader) {
    std::size_t sum = 0, packets = 0;
    while (const auto packet = reader.next()) {
        ASSERT(!packet->bytes.empty() && packet->bytes.size() <= kRingPacketMax);
        // A lap of each area: no stamp counts twice.
        ASSERT(++packets <= detail::kSmallRingSlots + detail::kRingSlots);
        for (const std::byte b : packet->bytes) sum += std::to_integer<std::size_t>(b);
    }
    reader.release();
    for (std::uint32_t i = 0; const auto packet = reader.left_behind(i); ++i) {
        ASSERT(i < detail::kRingLegacies);
        for (const std::byte b : packet->bytes) sum += std::to_integer<std::size_t>(b);
    }
    return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const auto memory = std::make_unique<detail::RingMemory>();
    std::memset(static_cast<void*>(memory.get()), 0, sizeof(detail::RingMemory));
    const ByteView input(reinterpret_cast<const std::byte*>(data), size);
    RingReader reader(memory.get());
    fill(*memory, input.first(size / 2));
    std::size_t sum = read_all(reader);
    fill(*memory, input.subspan(size / 2));
    sum += read_all(reader);
    return sum == ~std::size_t{0} ? 1 : 0;
}
