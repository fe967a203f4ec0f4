// See buffers.hpp.
#include "block/nbd/buffers.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/assert.hpp"

namespace feroce::block::nbd {

void Buffers::use(rtrs::Session session) {
    for (auto& kind : free_) kind.clear();
    pieces_.clear();
    held_ = 0;
    session_ = std::move(session);
}

std::size_t Buffers::kind_of(std::size_t bytes) {
    const std::size_t rounded = std::bit_ceil(std::max(bytes, kLeast));
    return static_cast<std::size_t>(std::countr_zero(rounded) - std::countr_zero(kLeast));
}

std::span<std::byte> Buffers::take(std::size_t bytes) {
    const std::size_t kind = kind_of(bytes), size = kLeast << kind;
    ASSERT(kind < kKinds && session_);
    auto& free = free_[kind];
    if (free.empty()) {
        const std::size_t piece = std::max(size, kPiece);
        free.reserve(free.capacity() + piece / size);  // Giving back takes no memory.
        auto made = session_->allocate(piece);
        if (!made) return {};
        const std::span<std::byte> all = made->bytes();
        pieces_.emplace(all.data(), *std::move(made));
        held_ += piece;
        for (std::size_t at = 0; at < piece; at += size) free.push_back(all.data() + at);
    }
    std::byte* const out = free.back();
    free.pop_back();
    return {out, size};
}

void Buffers::give_back(std::span<std::byte> buffer) {
    if (buffer.size() > kPiece && held_ > kKeptMax) {
        held_ -= buffer.size();
        pieces_.erase(buffer.data());
        return;
    }
    free_[kind_of(buffer.size())].push_back(buffer.data());
}

}  // namespace feroce::block::nbd
