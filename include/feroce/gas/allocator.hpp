// Allocator: one thread's way to shared memory of every node. It takes chunks of a node's heap with
// a compare-and-swap and cuts them itself, so an allocation costs no round trip in the common case.
// What is freed is used again by the same thread; what is more than a few of a size goes back to
// its home node, where every thread finds it.
//
// Sizes are rounded up to classes: 16 bytes, then two steps a power of two. The caller says the
// size when freeing, as the typed functions do by themselves.
//
// An allocation that fails, for want of memory or because its time is over, has taken nothing.
//
// A node that joined with `check_memory` marks its blocks, at a round trip each: freeing one twice,
// or with another size, is an error, and the node knows how many were never freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "feroce/gas/call.hpp"
#include "feroce/gas/lanes.hpp"

namespace feroce::gas {

class Allocator {
public:
    static constexpr std::size_t kClasses = 60;  // The largest is 12 GiB.
    static constexpr std::size_t kChunkBytes = 64 << 10;
    static constexpr std::size_t kCached = 64;             // Blocks of a class,
    static constexpr std::size_t kCachedBytes = 64 << 10;  // and bytes, but one always.

    // A node's heap: its bytes, and the words that share them out.
    struct Heap {
        ptr<std::byte> begin;
        std::uint64_t bytes = 0;
        ptr<nic<std::uint64_t>> next;   // Offset of the first byte that no chunk has.
        ptr<nic<std::uint64_t>> pools;  // kClasses stacks of freed blocks.
        ptr<nic<std::uint64_t>> live;   // How many blocks are in use. Null: not counted.
    };

    explicit Allocator(Lanes& lanes) : lanes_(lanes) {}
    void add_heap(NodeId node, const Heap& heap);

    Call<ptr<void>> allocate(NodeId node, std::size_t bytes, std::size_t alignment) {
        return {lanes_.loop(), allocating(node, bytes, alignment)};
    }
    Call<> free(ptr<void> block, std::size_t bytes) {
        return {lanes_.loop(), freeing(block, bytes)};
    }
    // Bytes of no type, all zero, aligned to 16, from 64 bytes on to 64.
    Call<ptr<void>> allocate_cleared(NodeId node, std::size_t bytes) {
        return {lanes_.loop(), allocating_cleared(node, bytes)};
    }

    template <Shareable T>
    Call<ptr<T>> make(NodeId node, T value) {
        return {lanes_.loop(), making(node, value)};
    }
    template <class T>
    Call<> destroy(ptr<T> object) {
        return free(object.template as<void>(), sizeof(T));
    }
    // On the nodes in turn; on the next one where a node is found lost.
    template <Shareable T>
    Call<ptr<T>> make_in_turn(const T& value) {
        return {lanes_.loop(), making_in_turn(value)};
    }

    bool has_memory(NodeId node) const {
        const auto index = static_cast<std::size_t>(node);
        return index < shares_.size() && shares_[index].heap.bytes > 0;
    }
    // It has memory, and this thread has not found it lost.
    bool reaches(NodeId node) const { return has_memory(node) && !lanes_.is_lost(node); }
    // Those in turn, for what is to be spread; at least one must have memory.
    NodeId next_node();

    // What a size is rounded up to; for tests, and for programs that want to waste nothing.
    static std::size_t class_of(std::size_t bytes);
    static std::size_t class_bytes(std::size_t index);

private:
    rdma::Task<Result<ptr<void>>> allocating(NodeId node, std::size_t bytes, std::size_t alignment);
    rdma::Task<Result<>> freeing(ptr<void> block, std::size_t bytes);
    rdma::Task<Result<ptr<void>>> allocating_cleared(NodeId node, std::size_t bytes);
    template <Shareable T>
    rdma::Task<Result<ptr<T>>> making(NodeId node, T value) {
        const auto memory = co_await allocate(node, sizeof(T), alignof(T));
        if (!memory) co_return memory.error();
        const ptr<T> out = memory->template as<T>();
        auto step = lanes_.chain(node);
        step.write(span<T>(out, 1), &value);
        // Not given up: it must not arrive when the block is another's. Fails if the node is lost.
        if (const auto written = co_await step.shielded(); !written) co_return written.error();
        co_return out;
    }
    template <Shareable T>
    rdma::Task<Result<ptr<T>>> making_in_turn(T value) {
        for (NodeId node = next_node();;) {
            const Result<ptr<T>> made = co_await make(node, value);
            if (made || reaches(node)) co_return made;
            node = next_node();
            if (!reaches(node)) co_return made;
        }
    }

    struct Share {  // Of one node's memory.
        Heap heap;
        std::uint64_t chunk_next = 0;  // Offsets into the heap.
        std::uint64_t chunk_end = 0;
        std::uint64_t heap_next = 0;                 // As last seen: it is there or further on.
        std::vector<std::uint64_t> freed[kClasses];  // Addresses.
        std::uint64_t pool_heads[kClasses] = {};     // As last seen.
    };

    // Before each block of a node that checks; the first word is left to the pools.
    struct alignas(64) Mark {
        std::uint64_t unused = 0;
        nic<std::uint64_t> state;
    };

    rdma::Task<Result<ptr<void>>> take_block(Share& share, std::size_t bytes,
                                             std::size_t alignment);
    rdma::Task<Result<ptr<void>>> take_marked(Share& share, std::size_t bytes);
    rdma::Task<Result<>> give_marked(Share& share, ptr<void> block, std::size_t bytes);
    rdma::Task<Result<>> give_block(Share& share, ptr<void> block, std::size_t bytes);
    rdma::Task<Result<>> mark(Share& share, ptr<Mark> before, std::size_t bytes);
    rdma::Task<Result<>> unmark(Share& share, ptr<Mark> before, std::size_t bytes);
    static std::size_t cached(std::size_t index);
    static std::uint64_t place(const Share& share, std::uint64_t bytes);
    static bool has_room(const Share& share, std::uint64_t bytes);
    rdma::Task<Result<std::uint64_t>> take(Share& share, std::uint64_t bytes);
    rdma::Task<Result<std::uint64_t>> pop(Share& share, std::size_t index);
    rdma::Task<Result<>> push(Share& share, std::size_t index, std::uint64_t address);

    Lanes& lanes_;
    std::vector<Share> shares_;  // By node.
    std::size_t turn_ = 0;
};

}  // namespace feroce::gas
