// See negotiation.hpp.
#include "block/nbd/negotiation.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/assert.hpp"

namespace feroce::block::nbd {
namespace {

constexpr std::size_t kOptionHead = 16;
constexpr std::size_t kOldZeroes = 124;

// Puts numbers together.
class Bytes {
public:
    explicit Bytes(std::vector<std::byte>& out) : out_(out) {}
    Bytes& u16(std::uint16_t v) {
        store_be16(more<2>(), v);
        return *this;
    }
    Bytes& u32(std::uint32_t v) {
        store_be32(more<4>(), v);
        return *this;
    }
    Bytes& u64(std::uint64_t v) {
        store_be64(more<8>(), v);
        return *this;
    }

private:
    template <std::size_t size>
    std::span<std::byte, size> more() {
        out_.resize(out_.size() + size);
        return std::span(out_).template last<size>();
    }

    std::vector<std::byte>& out_;
};

}  // namespace

ExportInfo ExportInfo::of(const DiskInfo& disk) {
    ExportInfo out;
    out.size = disk.shape.size;
    out.flags = kHasFlags | kFlushes | kFuaWorks | kMultiConn;
    if (disk.read_only) out.flags |= kReadOnly;
    if (disk.shape.rotational) out.flags |= kRotational;
    if (disk.max_discard != 0) out.flags |= kTrims;
    if (disk.max_zeroes != 0) out.flags |= kZeroes;
    out.block_min = disk.shape.logical_block;
    out.block_preferred = std::max(std::bit_ceil(disk.shape.physical_block), 4096u);
    return out;
}

Negotiation::Negotiation() {
    Bytes(output_).u64(kGreeting).u64(kOptionMagic).u16(kFixedNewstyle | kNoZeroes);
}

std::size_t Negotiation::take(ByteView in) {
    std::size_t used = 0;
    while (state_ == State::Hears) {
        const std::size_t step = this->step(in.subspan(used));
        if (step == 0) break;
        used += step;
    }
    return used;
}

std::size_t Negotiation::step(ByteView in) {
    if (!greeted_) {
        if (in.size() < 4) return 0;
        const std::uint32_t flags = load_be32(in.first<4>());
        greeted_ = true;
        no_zeroes_ = (flags & kNoZeroes) != 0;
        // An older client would not understand the answers to its options.
        const bool fixed = (flags & kFixedNewstyle) != 0;
        if (!fixed || (flags & ~(kFixedNewstyle | kNoZeroes)) != 0) state_ = State::Over;
        return 4;
    }
    if (in.size() < kOptionHead) return 0;
    const std::uint32_t option = load_be32(in.subspan<8, 4>());
    const std::size_t size = load_be32(in.subspan<12, 4>());
    if (load_be64(in.first<8>()) != kOptionMagic || size > kOptionMax) {
        state_ = State::Over;
        return in.size();
    }
    if (in.size() - kOptionHead < size) return 0;
    hear(option, in.subspan(kOptionHead, size));
    return kOptionHead + size;
}

// A name, of whatever bytes, and the kinds of information that are wanted, each of two.
bool Negotiation::is_sound(ByteView data) {
    if (data.size() < 6) return false;
    const std::size_t name = load_be32(data.first<4>());
    if (name > data.size() - 6) return false;
    const std::size_t wanted = load_be16(data.subspan(4 + name).first<2>());
    return data.size() == 6 + name + 2 * wanted;
}

void Negotiation::hear(std::uint32_t option, ByteView data) {
    option_ = option;
    switch (static_cast<Option>(option)) {
        case Option::Abort:
            answer(kAck);
            state_ = State::Over;
            return;
        case Option::List: {
            if (!data.empty()) return answer(kInvalid);
            constexpr std::array<std::byte, 4> kNoName{};
            answer(kServer, kNoName);
            return answer(kAck);
        }
        case Option::Info:
        case Option::Go:
            if (!is_sound(data)) return answer(kInvalid);
            break;
        case Option::ExportName:
            break;
        default:
            return answer(kUnsupported);
    }
    state_ = State::Asks;
    if (disk_) answer_asked();
}

void Negotiation::answer(std::uint32_t kind, ByteView data) {
    Bytes(output_)
        .u64(kOptionReplyMagic)
        .u32(option_)
        .u32(kind)
        .u32(static_cast<std::uint32_t>(data.size()));
    output_.insert(output_.end(), data.begin(), data.end());
}

// There is one disk, whatever name a client asks for. Block sizes are told unasked: a client that
// does not know them passes over them.
void Negotiation::answer_asked() {
    const auto option = static_cast<Option>(option_);
    if (option == Option::ExportName) {
        Bytes(output_).u64(disk_->size).u16(disk_->flags);
        if (!no_zeroes_) output_.resize(output_.size() + kOldZeroes);
        state_ = State::Requests;
        return;
    }
    std::vector<std::byte> part;
    Bytes(part).u16(kInfoExport).u64(disk_->size).u16(disk_->flags);
    answer(kInfo, part);
    part.clear();
    Bytes(part)
        .u16(kInfoBlockSize)
        .u32(disk_->block_min)
        .u32(disk_->block_preferred)
        .u32(disk_->block_max);
    answer(kInfo, part);
    answer(kAck);
    state_ = option == Option::Go ? State::Requests : State::Hears;
}

void Negotiation::describe(const ExportInfo& disk) {
    ASSERT(state_ == State::Asks);
    disk_ = disk;
    answer_asked();
}

void Negotiation::refuse() {
    ASSERT(state_ == State::Asks);
    // ExportName has no word for that.
    const bool told = static_cast<Option>(option_) != Option::ExportName;
    if (told) answer(kUnknown);
    state_ = told ? State::Hears : State::Over;
}

}  // namespace feroce::block::nbd
