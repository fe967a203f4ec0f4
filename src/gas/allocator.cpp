#include "feroce/gas/allocator.hpp"

#include <algorithm>
#include <cerrno>

#include "feroce/gas/limits.hpp"
#include "gas/pool_head.hpp"

namespace feroce::gas {
namespace {

using detail::PoolHead;

constexpr std::size_t kSmallest = PoolHead::kGranule;
constexpr std::size_t kLineBytes = 64;
constexpr std::uint64_t kLive = 0x6c69'7665'0000'0000;  // Above the size of a block.
constexpr std::uint64_t kFreed = 0x6672'6565'0000'0000;

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
    while (index + 1 < kClasses && class_bytes(index) < bytes) ++index;
    return index;
}

void Allocator::add_heap(NodeId node, const Heap& heap) {
    const auto index = static_cast<std::size_t>(node);
    if (shares_.size() <= index) shares_.resize(index + 1);
    shares_[index].heap = heap;
    for (std::size_t i = 0; i < kClasses; ++i) shares_[index].freed[i].reserve(cached(i));
    turn_ = static_cast<std::size_t>(lanes_.self());
}

NodeId Allocator::next_node() {
    for (std::size_t i = 0; i < shares_.size(); ++i) {
        turn_ = (turn_ + 1) % shares_.size();
        if (reaches(NodeId{static_cast<std::uint16_t>(turn_)})) break;
    }
    return NodeId{static_cast<std::uint16_t>(turn_)};
}

std::size_t Allocator::cached(std::size_t index) {
    return std::clamp<std::size_t>(kCachedBytes / class_bytes(index), 1, kCached);
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
    for (;;) {
        // The word only grows and never passes the end: an old view shows too much room, not too
        // little, and an allocation that fails leaves it as it was.
        const std::uint64_t start = share.heap_next;
        const std::uint64_t rest = share.heap.bytes - start;
        if (rest < bytes)
            co_return Error(ENOMEM,
                            "the shared memory of the node is used up: free some, or let the "
                            "node join with more");
        const std::uint64_t wanted = large ? round_up(bytes, kLineBytes) : kChunkBytes;
        const std::uint64_t chunk = std::min(wanted, rest);
        const auto found = co_await lanes_.compare_exchange(share.heap.next, start, start + chunk);
        if (!found) co_return found.error();
        share.heap_next = std::max(share.heap_next, *found == start ? start + chunk : *found);
        if (*found != start) continue;
        if (large) co_return start;
        if (start != share.chunk_end) share.chunk_next = start;
        share.chunk_end = start + chunk;
        const std::uint64_t from = place(share, bytes);
        share.chunk_next = from + bytes;
        co_return from;
    }
}

rdma::Task<Result<ptr<void>>> Allocator::allocating(NodeId node, std::size_t bytes,
                                                    std::size_t alignment) {
    if (!has_memory(node)) co_return Error(ENOMEM, "the node shares no memory");
    if (alignment > kLineBytes) co_return Error(EINVAL, "alignment goes up to 64 bytes");
    Share& share = shares_[static_cast<std::size_t>(node)];
    if (bytes > std::min<std::uint64_t>(share.heap.bytes, class_bytes(kClasses - 1) - kLineBytes))
        co_return Error(ENOMEM, "the block is larger than what the node shares");
    if (const auto in_time = co_await within_limits(lanes_.loop()); !in_time)
        co_return in_time.error();
    if (!share.heap.live) co_return co_await take_block(share, bytes, alignment).shielded();
    co_return co_await take_marked(share, bytes).shielded();
}

rdma::Task<Result<ptr<void>>> Allocator::allocating_cleared(NodeId node, std::size_t bytes) {
    const auto memory = co_await allocate(node, bytes, kSmallest);
    if (!memory) co_return memory;
    const std::vector<std::byte> zeroes(std::min(bytes, kChunkBytes));
    for (std::size_t done = 0; done < bytes; done += zeroes.size()) {
        const span<std::byte> rest(memory->as<std::byte>(), bytes);
        auto step = lanes_.chain(node);
        step.write(rest.subspan(done, zeroes.size()), zeroes.data());
        // As of make(): it must not arrive when the block is another's.
        if (const auto written = co_await step.shielded(); !written) co_return written.error();
    }
    co_return memory;
}

rdma::Task<Result<ptr<void>>> Allocator::take_marked(Share& share, std::size_t bytes) {
    const auto block = co_await take_block(share, bytes + sizeof(Mark), kLineBytes);
    if (!block) co_return block;
    const auto marked = co_await mark(share, block->as<Mark>(), bytes);
    if (!marked) co_return marked.error();  // The node is lost.
    co_return (block->as<Mark>() + 1).as<void>();
}

rdma::Task<Result<ptr<void>>> Allocator::take_block(Share& share, std::size_t bytes,
                                                    std::size_t alignment) {
    const NodeId node = share.heap.begin.node();
    // Blocks of a class are aligned to 16, from 64 bytes on to 64.
    const std::size_t index = class_of(std::max(bytes, alignment > 16 ? kLineBytes : kSmallest));
    if (!share.freed[index].empty()) {
        const std::uint64_t address = share.freed[index].back();
        share.freed[index].pop_back();
        co_return ptr<void>(node, address);
    }
    const std::uint64_t size = class_bytes(index);
    if (!has_room(share, size)) {  // Before another chunk: what others gave back.
        const auto popped = co_await pop(share, index);
        if (!popped) co_return popped.error();
        if (*popped != 0) co_return ptr<void>(node, *popped);
    }
    const auto offset = co_await take(share, size);
    if (!offset) co_return offset.error();
    co_return ptr<void>(node, share.heap.begin.address() + *offset);
}

rdma::Task<Result<>> Allocator::freeing(ptr<void> block, std::size_t bytes) {
    if (!has_memory(block.node()))
        co_return Error(EFAULT, "the block was not allocated from a heap of this cluster");
    Share& share = shares_[static_cast<std::size_t>(block.node())];
    const std::uint64_t offset = block.address() - share.heap.begin.address();
    if (offset >= share.heap.bytes || bytes > share.heap.bytes - offset)
        co_return Error(EFAULT, "the block was not allocated from a heap of this cluster");
    if (!share.heap.live) co_return co_await give_block(share, block, bytes).shielded();
    co_return co_await give_marked(share, block, bytes).shielded();
}

rdma::Task<Result<>> Allocator::give_marked(Share& share, ptr<void> block, std::size_t bytes) {
    const ptr<Mark> before = block.as<Mark>() - 1;
    if (const auto known = co_await unmark(share, before, bytes); !known) co_return known;
    co_return co_await give_block(share, before.as<void>(), bytes + sizeof(Mark));
}

rdma::Task<Result<>> Allocator::give_block(Share& share, ptr<void> block, std::size_t bytes) {
    const std::size_t index = class_of(std::max(bytes, kSmallest));
    if (share.freed[index].size() < cached(index)) {
        share.freed[index].push_back(block.address());
        co_return Result<>();
    }
    co_return co_await push(share, index, block.address());
}

rdma::Task<Result<>> Allocator::mark(Share& share, ptr<Mark> before, std::size_t bytes) {
    const std::uint64_t state = kLive ^ bytes;
    std::uint64_t count = 0;
    auto step = lanes_.chain(before.node());
    step.write(before.field<&Mark::state>(), state).fetch_add(share.heap.live, 1, count);
    co_return co_await step;
}

rdma::Task<Result<>> Allocator::unmark(Share& share, ptr<Mark> before, std::size_t bytes) {
    const auto state = before.field<&Mark::state>();
    const auto found = co_await lanes_.compare_exchange(state, kLive ^ bytes, kFreed ^ bytes);
    if (!found) co_return found.error();
    if (*found == (kFreed ^ bytes)) co_return Error(EINVAL, "the block was freed already");
    if (*found != (kLive ^ bytes))
        co_return Error(EINVAL, "no block of this size was allocated there");
    const auto counted = co_await lanes_.fetch_add(share.heap.live, ~std::uint64_t{0});
    if (!counted) co_return counted.error();
    co_return Result<>();
}

// Block and head in one round trip, with the head as last seen; again if that was stale.
rdma::Task<Result<>> Allocator::push(Share& share, std::size_t index, std::uint64_t address) {
    const ptr<nic<std::uint64_t>> head = share.heap.pools[index];
    const PoolHead code(share.heap.bytes);
    const std::uint64_t offset = address - share.heap.begin.address();
    for (std::uint64_t guess = share.pool_heads[index];;) {
        const std::uint64_t below = code.link(guess);
        const std::uint64_t desired = code.next(guess, code.link_to(offset));
        // Of this task alone: others of this thread may push too.
        std::uint64_t found = 0;
        auto step = lanes_.chain(head.node());
        step.write(ptr<std::uint64_t>(head.node(), address), below);
        step.compare_exchange(head, guess, desired, found);
        if (const auto done = co_await step; !done) co_return done.error();
        share.pool_heads[index] = found == guess ? desired : found;
        if (found == guess) co_return Result<>();
        guess = found;
    }
}

// 0 if the pool is empty.
rdma::Task<Result<std::uint64_t>> Allocator::pop(Share& share, std::size_t index) {
    const ptr<nic<std::uint64_t>> head = share.heap.pools[index];
    const PoolHead code(share.heap.bytes);
    for (;;) {
        const Instant looked = lanes_.loop().now();
        const auto seen = co_await lanes_.read(head);
        if (!seen) co_return seen.error();
        if (code.link(*seen) == 0) co_return std::uint64_t{0};
        const std::uint64_t address = share.heap.begin.address() + code.offset(*seen);
        // May be read while somebody else has the block already; the number in the head tells.
        const auto below = co_await lanes_.read(ptr<std::uint64_t>(head.node(), address));
        if (!below) co_return below.error();
        // A thread that was stopped for long looks again, rather than trust the number.
        if (lanes_.loop().now() - looked >= lanes_.lease().time) continue;
        const std::uint64_t desired = code.next(*seen, code.link(*below));
        const auto found = co_await lanes_.compare_exchange(head, *seen, desired);
        if (!found) co_return found.error();
        share.pool_heads[index] = *found == *seen ? desired : *found;
        if (*found == *seen) co_return address;
    }
}

}  // namespace feroce::gas
