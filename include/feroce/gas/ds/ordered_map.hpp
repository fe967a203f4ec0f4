// OrderedMap<K, V>: a B+tree whose nodes are spread over the memory of all nodes and linked to
// their right neighbours (a B-link tree). Inner nodes are kept by every thread, so a get is one
// round trip and a change two, once the thread knows the way; a split costs a few more.
//
// Tree nodes split but never merge or move, and only ever give keys to a new right neighbour. So
// what a thread remembers leads at worst too far left, from where the links lead on; nothing is
// ever freed under a reader. A splitter that dies before it told the parent leaves a longer way,
// not a broken tree. Each operation on a key is linearizable. A change that fails with ETIMEDOUT or
// ECANCELED was not made; one whose coroutine is destroyed is made or not, and leaves no lock. Any
// number of tasks of the thread may use one handle at the same time.
//
// What a map can do besides get() and scan() is in map_calls.hpp. A scan sees the entries as
// for_each() does; both see the keys in their order.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

#include "feroce/gas/call.hpp"
#include "feroce/gas/ds/map_calls.hpp"
#include "feroce/gas/ds/tree.hpp"
#include "feroce/gas/node.hpp"

namespace feroce::gas {

template <Shareable K, WordValue V>
requires std::totally_ordered<K>
class OrderedMap : public detail::MapCalls<OrderedMap<K, V>, K, V> {
    using Calls = detail::MapCalls<OrderedMap, K, V>;
    using Tree = detail::Tree<K, V>;
    using Block = typename Tree::Block;
    using Walk = typename Tree::Walk;

public:
    using Entry = typename Tree::Entry;
    using Value = typename Calls::Value;
    struct Root {
        nic<ptr<Block>> top;
    };

    static Result<ptr<Root>> create(Node& node) {
        const Result<ptr<Block>> leaf = node.allocate(Block());
        if (!leaf) return leaf.error();
        Root root;
        root.top = nic<ptr<Block>>(*leaf);
        const Result<ptr<Root>> made = node.allocate(root);
        if (!made) static_cast<void>(node.free(*leaf));
        return made;
    }
    // For one thread.
    static Result<OrderedMap> open(Node& node, ptr<Root> root, std::size_t thread = 0) {
        OrderedMap map(node.loop(thread), Tree(node.lanes(thread), node.allocator(thread),
                                               root.template field<&Root::top>()));
        const Result<> known = node.loop(thread).run(map.tree_.learn_top());
        if (!known) return known.error();
        return Result<OrderedMap>(std::move(map));
    }

    Call<Value> get(K key) { return {*loop_, find(key)}; }
    // The entries from a key on, at most as many as there is room for; gives how many.
    Call<std::size_t> scan(K from, std::span<Entry> into) { return {*loop_, fill(from, into)}; }

private:
    friend Calls;
    using Hold = typename Tree::Hold;

    OrderedMap(rdma::Loop& loop, Tree tree) : loop_(&loop), tree_(std::move(tree)) {}
    rdma::Loop& loop() const { return *loop_; }

    rdma::Task<Result<Value>> find(K key) {
        Walk walk;
        if (const auto found = co_await tree_.read_leaf(key, walk); !found) co_return found.error();
        co_return value_in(walk.content, key);
    }
    rdma::Task<Result<std::size_t>> fill(K from, std::span<Entry> into) {
        Walk walk;
        if (const auto found = co_await tree_.read_leaf(from, walk); !found)
            co_return found.error();
        auto& leaf = walk.content;
        std::size_t filled = 0;
        for (std::size_t place = leaf.place_of(from);; place = 0) {
            for (; place < leaf.count && filled < into.size(); ++place)
                into[filled++] = leaf.entries[place];
            if (filled == into.size() || leaf.next == 0) co_return filled;
            const auto next = ptr<Block>::from_bits(leaf.next);
            if (const auto got = co_await tree_.guard().read(next, leaf); !got)
                co_return got.error();
        }
    }
    template <class See>
    rdma::Task<Result<>> show(See see) {
        Walk walk;
        if (const auto found = co_await tree_.read_first_leaf(walk); !found)
            co_return found.error();
        for (auto& leaf = walk.content;;) {
            for (std::size_t i = 0; i < leaf.count; ++i)
                see(std::as_const(leaf.entries[i].key), std::as_const(leaf.entries[i].value));
            if (leaf.next == 0) co_return Result<>();
            const auto next = ptr<Block>::from_bits(leaf.next);
            if (const auto got = co_await tree_.guard().read(next, leaf); !got)
                co_return got.error();
        }
    }
    template <class Edit, class Tell>
    rdma::Task<Result<std::invoke_result_t<Tell, const Value&, const Value&>>> change(K key,
                                                                                      Edit edit,
                                                                                      Tell tell) {
        Walk walk;
        auto hold = co_await tree_.lock_node(0, key, walk);
        if (!hold) co_return hold.error();
        const Value before = value_in(walk.content, key);
        Value after = before;
        edit(after);  // The hold gives the lock back if it throws.
        const auto done = co_await write(*std::move(hold), key, after, walk).shielded();
        if (!done) co_return done.error();
        co_return tell(before, after);
    }
    // The value of a key in the locked leaf that the walk has led to; gives the lock back.
    rdma::Task<Result<>> write(Hold hold, K key, Value value, Walk& walk) {
        auto& leaf = walk.content;
        const std::size_t place = leaf.place_of(key);
        const bool there = leaf.has(place, key);
        if (!there && !value) co_return co_await tree_.guard().unlock(std::move(hold));
        if (there && value) co_return co_await tree_.store_value(std::move(hold), place, *value);
        if (value) co_return co_await tree_.insert(std::move(hold), place, {key, *value}, walk);
        leaf.remove(place);
        co_return co_await tree_.store(std::move(hold), leaf);
    }
    static Value value_in(const typename Tree::Content& leaf, const K& key) {
        const std::size_t place = leaf.place_of(key);
        return leaf.has(place, key) ? Value(leaf.entries[place].value) : Value();
    }

    rdma::Loop* loop_;
    Tree tree_;
};

}  // namespace feroce::gas
