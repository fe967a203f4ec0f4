// Buffers: memory of a disk's session for the data of NBD requests, which goes between there and a
// socket without a copy of ours. Powers of two; small ones are cut from larger pieces, and all are
// used again.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "feroce/rtrs/session.hpp"

namespace feroce::block::nbd {

class Buffers {
public:
    // Memory of this session from here on. No buffer is out.
    void use(rtrs::Session session);
    // Empty if there is no memory. A buffer may be longer than asked for.
    std::span<std::byte> take(std::size_t bytes);
    void give_back(std::span<std::byte> buffer);
    std::size_t held() const { return held_; }  // From the session, in bytes.

private:
    static constexpr std::size_t kLeast = 4096;
    static constexpr std::size_t kKinds = 14;  // Up to 32 MiB, the largest request.
    static constexpr std::size_t kPiece = 1 << 20;
    // What may be kept though nobody uses it, and what all clients together may have.
    static constexpr std::size_t kKeptMax = 64 << 20;
    static constexpr std::size_t kHeldMax = 1 << 30;

    // Of the session. Cut into buffers of one kind.
    struct Piece {
        rtrs::SessionBuffer memory;
        std::size_t size = 0;
        std::size_t out = 0;  // Buffers in use.
    };

    static std::size_t kind_of(std::size_t bytes);
    bool cut_another(std::size_t kind);
    Piece& piece_of(const std::byte* buffer);
    void let_go(std::size_t kind, const std::byte* begin, const Piece& piece);

    std::optional<rtrs::Session> session_;
    std::map<const std::byte*, Piece> pieces_;  // By where they begin.
    std::array<std::vector<std::byte*>, kKinds> free_;
    std::array<std::size_t, kKinds> made_{};  // Buffers there are.
    std::size_t held_ = 0, used_ = 0;
};

}  // namespace feroce::block::nbd
