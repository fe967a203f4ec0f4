#include "mem/far_memory.hpp"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.hpp"

namespace feroce::mem {

namespace {

// Smaller ones, such as packets of a network, are put together in the caches.
constexpr std::size_t kPastCachesMin = 16 * 1024;

#if defined(__x86_64__)
// Lines of `to`, which is aligned to them.
void stream_lines(std::byte* to, const std::byte* from, std::size_t lines) {
    constexpr std::size_t kFetchedAhead = 1024;
    for (; lines > 0; --lines, to += 64, from += 64) {
        __builtin_prefetch(from + kFetchedAhead);
        auto* const into = reinterpret_cast<__m128i*>(to);
        const auto* const words = reinterpret_cast<const __m128i*>(from);
        const __m128i a = _mm_loadu_si128(words), b = _mm_loadu_si128(words + 1),
                      c = _mm_loadu_si128(words + 2), d = _mm_loadu_si128(words + 3);
        _mm_stream_si128(into, a);
        _mm_stream_si128(into + 1, b);
        _mm_stream_si128(into + 2, c);
        _mm_stream_si128(into + 3, d);
    }
    _mm_sfence();  // Else they may come after the word that starts the copy.
}
#endif

class HeapStaging final : public Staging {
public:
    HeapStaging(std::unique_ptr<std::byte[]> memory, std::size_t size)
        : Staging(ByteSpan(memory.get(), size)), memory_(std::move(memory)) {}

private:
    std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

std::unique_ptr<Staging> heap_staging(std::size_t size) {
    return std::make_unique<HeapStaging>(std::make_unique_for_overwrite<std::byte[]>(size), size);
}

void fill_staging(ByteSpan staging, ByteView from) {
    ASSERT(staging.size() == from.size());
    if (from.empty()) return;
    std::size_t done = 0;
#if defined(__x86_64__)
    if (from.size() >= kPastCachesMin) {
        const std::size_t head = -reinterpret_cast<std::uintptr_t>(staging.data()) % 64;
        std::memcpy(staging.data(), from.data(), head);
        const std::size_t lines = (from.size() - head) / 64;
        stream_lines(staging.data() + head, from.data() + head, lines);
        done = head + lines * 64;
    }
#else
    (void)kPastCachesMin;
#endif
    if (done < from.size())
        std::memcpy(staging.data() + done, from.data() + done, from.size() - done);
}

}  // namespace feroce::mem
