// See requests.hpp.
#include "block/ublk/requests.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace feroce::block::ublk {
namespace {

std::uint8_t shift_of(std::uint32_t bytes) {
    return static_cast<std::uint8_t>(std::bit_width(std::max(bytes, kSectorSize)) - 1);
}

std::uint32_t sectors_of(std::uint64_t bytes) {
    constexpr std::uint64_t kMost = 1u << 30 >> 9;  // 1 GiB: a reply comes within its time.
    return static_cast<std::uint32_t>(std::min(bytes / kSectorSize, kMost));
}

rdma::Task<rdma::Result<>> discard(const Disk& disk, std::uint64_t offset, std::uint64_t length,
                                   bool fua) {
    auto done = co_await disk.discard(offset, length);
    if (done && fua) co_return co_await disk.flush();
    co_return done;
}

}  // namespace

Params params_of(const DiskInfo& info, std::uint32_t request_bytes) {
    const Shape& shape = info.shape;
    Params out;
    out.parts = kBasicPart;
    // A server may keep what is written in a cache that it does not tell of: flushes go through.
    out.attributes = kVolatileCache | kFuaWorks | (info.read_only ? kReadOnly : 0) |
                     (shape.rotational ? kRotational : 0);
    out.logical_shift = shift_of(shape.logical_block);
    out.physical_shift = std::max(out.logical_shift, shift_of(shape.physical_block));
    out.best_shift = out.least_shift = out.physical_shift;
    out.request_sectors = request_bytes / kSectorSize;
    out.sectors = shape.size / kSectorSize;
    if (info.max_discard > 0 || info.max_zeroes > 0) out.parts |= kDiscardPart;
    out.zeroes_sectors = sectors_of(info.max_zeroes);
    if (out.parts & kDiscardPart)
        out.discard_granularity = std::max(shape.discard_granularity, shape.logical_block);
    if (info.max_discard > 0) {
        out.discard_sectors = sectors_of(info.max_discard);
        out.discard_segments = 1;
    }
    return out;
}

rdma::Task<int> perform(Disk disk, Request request, std::span<std::byte> data) {
    const std::uint64_t offset = request.first_sector * kSectorSize;
    const std::uint64_t length = std::uint64_t{request.sectors} * kSectorSize;
    const std::uint32_t what = request.what & 0xff;
    const bool fua = (request.what & kFua) != 0;
    const bool moves = what == kRead || what == kWrite;
    if (moves && length > data.size()) co_return -EINVAL;
    rdma::Result<> done;
    switch (what) {
        case kRead:
            done = co_await disk.read(offset, data.first(length));
            break;
        case kWrite:
            done = co_await disk.write(offset, data.first(length), {.fua = fua});
            break;
        case kFlush:
            done = co_await disk.flush();
            break;
        case kDiscard:
            done = co_await discard(disk, offset, length, fua);
            break;
        case kZeroes:
            done = co_await disk.zero(offset, length,
                                      {.unmap = (request.what & kKeepSpace) == 0, .fua = fua});
            break;
        default:
            co_return -EOPNOTSUPP;
    }
    if (!done) co_return done.error().code > 0 ? -done.error().code : -EIO;
    co_return moves ? static_cast<int>(length) : 0;
}

}  // namespace feroce::block::ublk
