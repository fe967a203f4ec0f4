#include "feroce/gas/allocator.hpp"

#include <algorithm>
#include <cerrno>

namespace feroce::gas {
namespace {

constexpr std::uint64_t kAddressMask = (std::uint64_t{1} << 48) - 1;
constexpr std::size_t kSmallest = 16;
constexpr std::size_t kLineBytes = 64;

// The head of a pool: an address, and above it a number that every change counts up. A stale view
// of a head is then never taken for the same again, until 65,536 changes later.
std::uint64_t next_head(std::uint64_t before, std::uint64_t address) {
    return ((before & ~kAddressMask) + (kAddressMask + 1)) | address;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
    return (value + to - 1) / to * to;
}

}  // namespace

std::size_t Allocator::class_bytes(std::size_t index) {
    if (index == 0) return kSmallest;
    const std::size_t power = kSmallest << ((index + 1) / 2);
    return index % 2 == 0 ? power : power - power / 4;
}

std::size_t Allocator::class_of(std::size_t bytes) {
    std::size_t index = 0;
    while (class_bytes(index) < bytes) ++index;
    return index;
}

void Allocator::add_heap(NodeId node, const Heap& heap) {
    const auto index = static_cast<std::size_t>(node);
    if (shares_.size() <= index) shares_.resize(index + 1);
    shares_[index].heap = heap;
    for (auto& list : shares_[index].freed) list.reserve(kCached);
}

std::uint64_t Allocator::place(const Share& share, std::uint64_t bytes) {
    return round_up(share.chunk_next, bytes >= kLineBytes ? kLineBytes : kSmallest);
}

bool Allocator::has_room(const Share& share, std::uint64_t bytes) {
    return place(share, bytes) + bytes <= share.chunk_end;
}

rdma::Task<Result<std::uint64_t>> Allocator::take(Share& share, std::uint64_t bytes) {
    if (has_room(share, bytes)) {
        const std::uint64_t from = place(share, bytes);
        share.chunk_next = from + bytes;
        co_return from;
    }
    // Large blocks get a chunk of their own, so that the current one is not thrown away.
    const bool large = bytes > kChunkBytes / 4;
    const std::uint64_t chunk = large ? round_up(bytes, kLineBytes) : kChunkBytes;
    const auto start = co_await lanes_.fetch_add(share.heap.next, chunk);
    if (!start) co_return start.error();
    if (*start + chunk > share.heap.bytes || *start + chunk < *start)
        co_return Error(ENOMEM,
                        "the shared memory of the node is used up: free some, or let the "
                        "node join with more");
    if (large) co_return *start;
    share.chunk_next = *start + bytes;
    share.chunk_end = *start + chunk;
    co_return *start;
}

rdma::Task<Result<ptr<void>>> Allocator::allocate(NodeId node, std::size_t bytes,
                                                  std::size_t alignment) {
    const auto where = static_cast<std::size_t>(node);
    if (where >= shares_.size() || shares_[where].heap.bytes == 0)
        co_return Error(ENOMEM, "the node shares no memory");
    if (alignment > kLineBytes) co_return Error(EINVAL, "alignment goes up to 64 bytes");
    Share& share = shares_[where];
    // Blocks of a class are aligned to 16, from 64 bytes on to 64.
    const std::size_t wanted = std::max(bytes, alignment > 16 ? kLineBytes : kSmallest);
    const bool classed = wanted <= class_bytes(kClasses - 1);
    const std::size_t index = classed ? class_of(wanted) : 0;
    if (classed && !share.freed[index].empty()) {
        const std::uint64_t address = share.freed[index].back();
        share.freed[index].pop_back();
        co_return ptr<void>(node, address);
    }
    const std::uint64_t size = classed ? class_bytes(index) : wanted;
    if (classed && !has_room(share, size)) {  // Before another chunk: what others gave back.
        const auto head = co_await lanes_.read(share.heap.pools[index]);
        if (!head) co_return head.error();
        share.pool_heads[index] = *head;
        const auto popped = co_await pop(share, index);
        if (!popped) co_return popped.error();
        if (*popped != 0) co_return ptr<void>(node, *popped);
    }
    const auto offset = co_await take(share, size);
    if (!offset) co_return offset.error();
    co_return ptr<void>(node, share.heap.begin.address() + *offset);
}

rdma::Task<Result<>> Allocator::free(ptr<void> block, std::size_t bytes) {
    const auto where = static_cast<std::size_t>(block.node());
    if (where >= shares_.size() || block.address() < shares_[where].heap.begin.address())
        co_return Error(EFAULT, "the block was not allocated from a heap of this cluster");
    Share& share = shares_[where];
    const std::size_t wanted = std::max(bytes, kSmallest);
    if (wanted > class_bytes(kClasses - 1))
        co_return Error(EINVAL, "blocks of more than 48 KiB cannot be freed: keep them");
    const std::size_t index = class_of(wanted);
    if (share.freed[index].size() < kCached) {
        share.freed[index].push_back(block.address());
        co_return Result<>();
    }
    co_return co_await push(share, index, block.address());
}

// Block and head in one round trip, with the head as last seen; again if that was stale.
rdma::Task<Result<>> Allocator::push(Share& share, std::size_t index, std::uint64_t address) {
    const ptr<nic<std::uint64_t>> head = share.heap.pools[index];
    std::uint64_t& seen = share.pool_heads[index];
    for (;;) {
        const std::uint64_t below = seen & kAddressMask;
        const std::uint64_t guess = seen;
        auto step = lanes_.chain(head.node());
        step.write(ptr<std::uint64_t>(head.node(), address), below);
        step.compare_exchange(head, guess, next_head(guess, address), seen);
        if (const auto done = co_await step; !done) co_return done.error();
        if (seen == guess) {
            seen = next_head(guess, address);
            co_return Result<>();
        }
    }
}

// 0 if the pool is empty.
rdma::Task<Result<std::uint64_t>> Allocator::pop(Share& share, std::size_t index) {
    const ptr<nic<std::uint64_t>> head = share.heap.pools[index];
    std::uint64_t& seen = share.pool_heads[index];
    for (;;) {
        const std::uint64_t guess = seen;
        const std::uint64_t address = guess & kAddressMask;
        if (address == 0) co_return std::uint64_t{0};
        // May be read while somebody else has the block already; the number in the head tells.
        const auto below = co_await lanes_.read(ptr<std::uint64_t>(head.node(), address));
        if (!below) co_return below.error();
        const std::uint64_t desired = next_head(guess, *below & kAddressMask);
        const auto found = co_await lanes_.compare_exchange(head, guess, desired);
        if (!found) co_return found.error();
        seen = *found == guess ? desired : *found;
        if (*found == guess) co_return address;
    }
}

}  // namespace feroce::gas
