// OrderedMap<K, V>: a B+tree whose nodes are spread over the memory of all nodes and linked to
// their right neighbours (a B-link tree). Inner nodes are kept by every thread, so a get is one
// round trip and a change two, once the thread knows the way; a split costs a few more.
//
// Tree nodes split but never merge or move, and only ever give keys to a new right neighbour. So
// what a thread remembers leads at worst too far left, from where the links lead on; nothing is
// ever freed under a reader. A splitter that dies before it told the parent leaves a longer way,
// not a broken tree. Each operation is linearizable; a scan sees each leaf as it was at one moment.
// A change that fails with ETIMEDOUT or ECANCELED was not made. Any number of tasks of the thread
// may use one handle at the same time.
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <utility>

#include "feroce/gas/ds/tree.hpp"
#include "feroce/gas/node.hpp"

namespace feroce::gas {

template <Shareable K, WordValue V>
requires std::totally_ordered<K>
class OrderedMap {
    using Tree = detail::Tree<K, V>;
    using Block = typename Tree::Block;
    using Walk = typename Tree::Walk;

public:
    using Entry = typename Tree::Entry;
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
        OrderedMap map(
            Tree(node.lanes(thread), node.allocator(thread), root.template field<&Root::top>()));
        const Result<> known = node.loop(thread).run(map.tree_.learn_top());
        if (!known) return known.error();
        return Result<OrderedMap>(std::move(map));
    }

    rdma::Task<Result<std::optional<V>>> get(K key) {
        Walk walk;
        if (const auto found = co_await tree_.read_leaf(key, walk); !found) co_return found.error();
        const auto& leaf = walk.content;
        const std::size_t place = leaf.place_of(key);
        if (!leaf.has(place, key)) co_return std::optional<V>();
        co_return std::optional<V>(leaf.entries[place].value);
    }
    // The entries from a key on, at most as many as there is room for; gives how many.
    rdma::Task<Result<std::size_t>> scan(K from, std::span<Entry> into) {
        Walk walk;
        if (const auto found = co_await tree_.read_leaf(from, walk); !found)
            co_return found.error();
        auto& leaf = walk.content;
        std::size_t count = 0;
        for (std::size_t place = leaf.place_of(from);; place = 0) {
            for (; place < leaf.count && count < into.size(); ++place)
                into[count++] = leaf.entries[place];
            if (count == into.size() || leaf.next == 0) co_return count;
            const auto next = ptr<Block>::from_bits(leaf.next);
            const auto read = co_await tree_.guard().read(next, leaf);
            if (!read) co_return read.error();
        }
    }
    // Sets the value; true if the key is new.
    rdma::Task<Result<bool>> put(K key, V value) { return tree_.insert(Entry{key, value}); }
    // True if it was there.
    rdma::Task<Result<bool>> erase(K key) {
        Walk walk;
        const auto hold = co_await tree_.lock_node(0, key, walk);
        if (!hold) co_return hold.error();
        auto& leaf = walk.content;
        const std::size_t place = leaf.place_of(key);
        if (!leaf.has(place, key)) {
            const auto freed = co_await tree_.guard().unlock(*hold);
            if (!freed) co_return freed.error();
            co_return false;
        }
        leaf.remove(place);
        if (const auto done = co_await tree_.store(*hold, leaf); !done) co_return done.error();
        co_return true;
    }

private:
    explicit OrderedMap(Tree tree) : tree_(std::move(tree)) {}

    Tree tree_;
};

}  // namespace feroce::gas
