// Tree<K, V>: one thread's view of OrderedMap's B-link tree: how it finds, locks, inserts into and
// splits nodes. It remembers the inner nodes it has seen. Nodes only ever give keys to a new right
// neighbour, so what it remembers leads at worst too far left, from where links lead on.
#pragma once

#include <bit>
#include <cerrno>
#include <unordered_map>
#include <utility>

#include "feroce/gas/allocator.hpp"
#include "feroce/gas/ds/tree_node.hpp"
#include "feroce/gas/sync/guarded.hpp"

namespace feroce::gas::detail {

template <class K, class V>
class Tree {
public:
    using Content = TreeNode<K, V>;
    using Entry = TreeEntry<K, V>;
    using Guard = Guarded<Content>;
    using Block = typename Guard::Block;
    using Hold = typename Guard::Hold;

    Tree(Lanes& lanes, Allocator& allocator, ptr<nic<ptr<Block>>> top_word)
        : lanes_(&lanes), allocator_(&allocator), guard_(lanes), top_word_(top_word) {
        inner_.reserve(kRemembered);
    }

    // What one operation has read last, and the way it took there.
    struct Walk {
        Content content;
        ptr<Block> parent;
    };

    Guard& guard() { return guard_; }

    // Before anything else.
    rdma::Task<Result<>> learn_top() {
        Content content;
        const auto top = co_await lanes_->read(top_word_);
        if (!top) co_return top.error();
        const auto read = co_await guard_.read(*top, content);
        if (!read) co_return read.error();
        top_ = *top;
        top_level_ = content.level;
        outgrown_ = false;
        if (top_level_ > 0) remember(top_, content);
        co_return Result<>();
    }

    rdma::Task<Result<>> read_leaf(K key, Walk& walk) {
        auto at = co_await way_to(0, key, walk);
        for (;;) {
            if (!at) co_return at.error();
            if (const auto read = co_await guard_.read(*at, walk.content); !read)
                co_return read.error();
            if (!walk.content.beyond(key)) co_return Result<>();
            forget_parent(walk);
            at = ptr<Block>::from_bits(walk.content.next);
        }
    }
    // The leaf of the smallest keys: the leftmost node of a level stays that.
    rdma::Task<Result<>> read_first_leaf(Walk& walk) {
        for (ptr<Block> at = top_;;) {
            if (const auto read = co_await guard_.read(at, walk.content); !read)
                co_return read.error();
            if (walk.content.level == 0) co_return Result<>();
            at = ptr<Block>::from_bits(std::bit_cast<std::uint64_t>(walk.content.entries[0].value));
        }
    }
    // Leaves the locked node's content in the walk.
    rdma::Task<Result<Hold>> lock_node(std::uint64_t level, K key, Walk& walk) {
        auto at = co_await way_to(level, key, walk);
        for (;;) {
            if (!at) co_return at.error();
            auto hold = co_await guard_.lock(*at, walk.content);
            if (!hold) co_return hold.error();
            if (!walk.content.beyond(key)) co_return hold;
            at = ptr<Block>::from_bits(walk.content.next);
            forget_parent(walk);
            const auto freed = co_await guard_.unlock(*std::move(hold));
            if (!freed) co_return freed.error();
        }
    }
    rdma::Task<Result<>> store(Hold hold, const Content& content) {
        const ptr<Block> block = hold.block;
        const auto done = co_await guard_.store(std::move(hold), Guard::content_of(block), content);
        if (done && content.level > 0) remember(block, content);
        co_return done;
    }
    // A value of a locked node.
    rdma::Task<Result<>> store_value(Hold hold, std::size_t place, const V& value) {
        const auto where = entry_at(hold.block, place).template field<&Entry::value>();
        co_return co_await guard_.store(std::move(hold), where, value);
    }
    // A new key, into the locked leaf that the walk has led to.
    rdma::Task<Result<>> insert(Hold hold, std::size_t place, Entry entry, Walk& walk) {
        Content& leaf = walk.content;
        if (leaf.count < Content::kEntries) {
            leaf.insert(place, entry);
            co_return co_await store(std::move(hold), leaf);
        }
        const auto right = co_await split(std::move(hold), place, entry, leaf);
        if (!right) co_return right.error();
        // The key is there. A parent that does not learn of its leaf makes the way longer, no more.
        static_cast<void>(co_await tell_parents(*right, walk));
        co_return Result<>();
    }

private:
    void remember(ptr<Block> block, const Content& content) {
        if (inner_.size() >= kRemembered) inner_.clear();
        inner_.insert_or_assign(block.bits(), content);
    }
    // That there is a new node beside one of theirs.
    rdma::Task<Result<>> tell_parents(Entry entry, Walk& walk) {
        for (std::uint64_t level = 1;;) {
            if (level > top_level_) {
                const auto grown = co_await grow(level, entry);
                if (!grown) co_return grown.error();
                if (*grown) co_return Result<>();
                continue;
            }
            auto hold = co_await lock_node(level, entry.key, walk);
            if (!hold) co_return hold.error();
            Content& node = walk.content;
            const std::size_t place = node.place_of(entry.key);
            if (node.has(place, entry.key))
                co_return co_await store_value(*std::move(hold), place, entry.value);
            if (node.count < Content::kEntries) {
                node.insert(place, entry);
                co_return co_await store(*std::move(hold), node);
            }
            const auto right = co_await split(*std::move(hold), place, entry, node);
            if (!right) co_return right.error();
            entry = *right;
            ++level;
        }
    }

    // The node of that level where the key was when the thread last looked; not read yet.
    rdma::Task<Result<ptr<Block>>> way_to(std::uint64_t level, K key, Walk& walk) {
        if (outgrown_)
            if (const auto learnt = co_await learn_top(); !learnt) co_return learnt.error();
        ptr<Block> at = top_;
        walk.parent = nullptr;
        for (std::uint64_t here = top_level_; here > level; --here) {
            for (;;) {
                const auto known = inner_.find(at.bits());
                if (known == inner_.end()) {
                    const auto read = co_await guard_.read(at, walk.content);
                    if (!read) co_return read.error();
                    remember(at, walk.content);
                    continue;
                }
                if (!known->second.beyond(key)) {
                    walk.parent = at;
                    at = ptr<Block>::from_bits(known->second.child_of(key));
                    break;
                }
                at = ptr<Block>::from_bits(known->second.next);
                forget_parent(walk);
            }
        }
        co_return at;
    }
    // It does not know of a split, or this thread does not know that it does.
    void forget_parent(const Walk& walk) {
        if (walk.parent) inner_.erase(walk.parent.bits());
        outgrown_ |= !walk.parent;
    }

    // Gives what the parent is to know: the new right neighbour and where its keys begin.
    rdma::Task<Result<Entry>> split(Hold hold, std::size_t place, Entry entry, Content& left) {
        Block right;
        right.content = left.upper_half();
        const std::size_t half = Content::kEntries - right.content.count;
        if (place > half) right.content.insert(place - half, entry);
        const auto made = co_await allocator_->make_in_turn(right);
        if (!made) co_return co_await guard_.give_up(std::move(hold), made.error());
        left.count = half;
        if (place <= half) left.insert(place, entry);
        left.next = made->bits();
        left.end = right.content.entries[0].key;
        if (const auto done = co_await store(std::move(hold), left); !done) {
            // ESTALE: nobody knows of it. Else it is not known, and its node is lost.
            if (done.error().code == ESTALE) static_cast<void>(co_await allocator_->destroy(*made));
            co_return done.error();
        }
        co_return Entry{right.content.entries[0].key, std::bit_cast<V>(made->bits())};
    }
    // False if somebody else did: then the level exists.
    rdma::Task<Result<bool>> grow(std::uint64_t level, Entry second) {
        const ptr<Block> below = top_;  // Another task of this thread may change it meanwhile.
        Block top;
        top.content.level = level;
        top.content.count = 2;
        top.content.entries[0] = {K{}, std::bit_cast<V>(below.bits())};
        top.content.entries[1] = second;
        const auto made = co_await allocator_->make_in_turn(top);
        if (!made) co_return made.error();
        const auto found = co_await lanes_->compare_exchange(top_word_, below, *made);
        if (!found) co_return found.error();
        if (*found == below) {
            top_ = *made;
            top_level_ = level;
            remember(top_, top.content);
            co_return true;
        }
        const auto given = co_await allocator_->destroy(*made);
        if (!given) co_return given.error();
        const auto learnt = co_await learn_top();
        if (!learnt) co_return learnt.error();
        co_return false;
    }

    static ptr<Entry> entry_at(ptr<Block> block, std::size_t index) {
        return Guard::content_of(block).template elements<&Content::entries>()[index];
    }

    static constexpr std::size_t kRemembered = 1024;

    Lanes* lanes_;
    Allocator* allocator_;
    Guard guard_;
    ptr<nic<ptr<Block>>> top_word_;
    ptr<Block> top_;
    std::uint64_t top_level_ = 0;
    bool outgrown_ = false;                             // The tree may be higher by now.
    std::unordered_map<std::uint64_t, Content> inner_;  // By bits.
};

}  // namespace feroce::gas::detail
