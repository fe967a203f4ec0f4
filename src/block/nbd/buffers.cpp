// See buffers.hpp.
#include "block/nbd/buffers.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <utility>

#include "base/assert.hpp"

namespace feroce::block::nbd {

void Buffers::use(rtrs::Session session) {
    for (auto& kind : free_) kind.clear();
    made_ = {};
    pieces_.clear();
    held_ = used_ = 0;
    session_ = std::move(session);
}

std::size_t Buffers::kind_of(std::size_t bytes) {
    const std::size_t rounded = std::bit_ceil(std::max(bytes, kLeast));
    return static_cast<std::size_t>(std::countr_zero(rounded) - std::countr_zero(kLeast));
}

std::span<std::byte> Buffers::take(std::size_t bytes) {
    const std::size_t kind = kind_of(bytes), size = kLeast << kind;
    ASSERT(kind < kKinds && session_);
    if (free_[kind].empty() && !cut_another(kind)) return {};
    std::byte* const out = free_[kind].back();
    free_[kind].pop_back();
    ++piece_of(out).out;
    used_ += size;
    return {out, size};
}

bool Buffers::cut_another(std::size_t kind) {
    const std::size_t size = kLeast << kind, whole = std::max(size, kPiece);
    if (held_ + whole > kHeldMax) return false;
    free_[kind].reserve(made_[kind] + whole / size);  // Giving back takes no memory.
    auto made = session_->allocate(whole);
    if (!made) return false;
    std::byte* const begin = made->bytes().data();
    pieces_.emplace(begin, Piece{*std::move(made), whole});
    held_ += whole;
    made_[kind] += whole / size;
    for (std::size_t at = 0; at < whole; at += size) free_[kind].push_back(begin + at);
    return true;
}

Buffers::Piece& Buffers::piece_of(const std::byte* buffer) {
    return std::prev(pieces_.upper_bound(buffer))->second;
}

void Buffers::give_back(std::span<std::byte> buffer) {
    const std::size_t kind = kind_of(buffer.size());
    free_[kind].push_back(buffer.data());
    used_ -= buffer.size();
    const auto piece = std::prev(pieces_.upper_bound(buffer.data()));
    if (--piece->second.out == 0 && held_ - used_ > kKeptMax)
        let_go(kind, piece->first, piece->second);
}

// A piece of which nothing is in use.
void Buffers::let_go(std::size_t kind, const std::byte* begin, const Piece& piece) {
    const std::byte* const end = begin + piece.size;
    std::erase_if(free_[kind], [&](const std::byte* at) {
        return std::greater_equal<>()(at, begin) && std::less<>()(at, end);
    });
    held_ -= piece.size;
    made_[kind] -= piece.size / (kLeast << kind);
    pieces_.erase(begin);
}

}  // namespace feroce::block::nbd
