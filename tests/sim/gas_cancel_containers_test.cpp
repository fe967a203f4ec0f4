// Containers whose callers give up, at each suspension point of each operation: no lock is left,
// nothing is lost, and what was stopped was done or not, as it said. The points that were visited
// are printed for each operation; none is a failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "feroce/gas/ds/array.hpp"
#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/list_set.hpp"
#include "feroce/gas/ds/ordered_map.hpp"
#include "feroce/gas/ds/queue.hpp"
#include "feroce/gas/sync/versioned.hpp"
#include "sim/gas_giving_up.hpp"

namespace feroce::sim {
namespace {

using gas::ptr;
using gas::Result;
using rdma::Task;

using Table = gas::HashMap<std::uint64_t, std::uint64_t>;
using Ordered = gas::OrderedMap<std::uint64_t, std::uint64_t>;
using Fifo = gas::Queue<std::uint64_t>;
using Set = gas::ListSet<std::uint64_t>;

// Keys 1 to `full` fill the only bucket, or the only leaf: one more makes it grow.
template <class M>
void expect_whole_map(const Scene<M>& scene, std::uint64_t full) {
    const auto value = [](M& map, std::uint64_t key) { return map.get(key).wait().value(); };
    // Nothing but key 5, or a new one, may be another; and a change meets no lock.
    const auto others_stay = [=](M& map) {
        for (std::uint64_t key = 1; key <= full; ++key)
            EXPECT_TRUE(key == 5 || value(map, key) == key) << key;
        const auto after = value(map, 5);
        EXPECT_TRUE(map.put(5, 77).wait());
        return after;
    };
    expect_whole(
        scene, "put", [](M& map) { return map.put(5, 6); },
        [=](M& map) { return others_stay(map) == 6u; });
    expect_whole(
        scene, "put new", [=](M& map) { return map.put(full + 1, 6); },
        [=](M& map) { return others_stay(map) == 5u && value(map, full + 1) == 6u; });
    expect_whole(
        scene, "insert", [=](M& map) { return map.insert(full + 1, 6); },
        [=](M& map) { return others_stay(map) == 5u && value(map, full + 1) == 6u; });
    expect_whole(
        scene, "erase", [](M& map) { return map.erase(5); },
        [=](M& map) { return others_stay(map) == std::nullopt; });
    expect_whole(
        scene, "update",
        [](M& map) { return map.update(5, [](auto& now) { now = now.value_or(0) + 4; }); },
        [=](M& map) { return others_stay(map) == 9u; });
    // What only reads is done if it says so.
    bool shown = false;
    const auto is_five = [](const std::optional<std::uint64_t>& found) { return found == 5u; };
    expect_whole(
        scene, "get", [&](M& map) { return look(map.get(5), is_five, shown); },
        [&](M& map) { return others_stay(map) == 5u && shown; });
    const auto is_all = [=](std::uint64_t count) { return count == full + 1; };
    expect_whole(
        scene, "size", [&](M& map) { return look(map.size(), is_all, shown); },
        [&](M& map) { return others_stay(map) == 5u && shown; });
    expect_whole(
        scene, "for_each",
        [&](M& map) {
            shown = false;
            return map.for_each([&](std::uint64_t key, std::uint64_t) { shown |= key == full; });
        },
        [&](M& map) { return others_stay(map) == 5u && shown; });
}

TEST(GasCancel, HashMapIsWhole) {
    const Scene<Table> scene{
        "HashMap",
        [](gas::Node& node) {
            const auto root = Table::create(node, 1).value();
            Table table = Table::open(node, root).value();
            for (std::uint64_t key = 1; key <= 7; ++key) EXPECT_TRUE(table.put(key, key).wait());
            EXPECT_TRUE(table.put(kOther, 0).wait());  // The eighth, and last.
            return root;
        },
        [](gas::Node& node, ptr<Table::Root> root) { return Table::open(node, root).value(); },
        [](Table& table, std::uint64_t count) { EXPECT_TRUE(table.put(kOther, count).wait()); }};
    expect_whole_map(scene, 7);
}

TEST(GasCancel, OrderedMapIsWhole) {
    using Leaf = gas::detail::TreeNode<std::uint64_t, std::uint64_t>;
    const Scene<Ordered> scene{
        "OrderedMap",
        [](gas::Node& node) {
            const auto root = Ordered::create(node).value();
            Ordered map = Ordered::open(node, root).value();
            for (std::uint64_t key = 1; key < Leaf::kEntries; ++key)
                EXPECT_TRUE(map.put(key, key).wait());
            EXPECT_TRUE(map.put(kOther, 0).wait());
            return root;
        },
        [](gas::Node& node, ptr<Ordered::Root> root) { return Ordered::open(node, root).value(); },
        [](Ordered& map, std::uint64_t count) { EXPECT_TRUE(map.put(kOther, count).wait()); }};
    expect_whole_map(scene, Leaf::kEntries - 1);
}

// From the middle of one leaf to the end of another.
TEST(GasCancel, OrderedMapIsScanned) {
    static constexpr std::uint64_t kKeys = 200;
    const Scene<Ordered> scene{
        "OrderedMap",
        [](gas::Node& node) {
            const auto root = Ordered::create(node).value();
            Ordered map = Ordered::open(node, root).value();
            for (std::uint64_t key = 1; key <= kKeys; ++key) EXPECT_TRUE(map.put(key, key).wait());
            return root;
        },
        [](gas::Node& node, ptr<Ordered::Root> root) { return Ordered::open(node, root).value(); },
        [](Ordered& map, std::uint64_t count) { EXPECT_TRUE(map.put(kOther, count).wait()); }};
    std::array<Ordered::Entry, kKeys / 2> entries;
    bool seen = false;
    const auto right = [&](std::size_t count) {
        bool all = count == entries.size();
        for (std::size_t i = 0; i < count; ++i) all &= entries[i].key == 3 + i;
        return all;
    };
    expect_whole(
        scene, "scan", [&](Ordered& map) { return look(map.scan(3, entries), right, seen); },
        [&](Ordered& map) { return map.put(3, 3).wait() && seen; });
}

TEST(GasCancel, QueueLosesNothing) {
    const Scene<Fifo> scene{"Queue",
                            [](gas::Node& node) {
                                const auto root = Fifo::create(node).value();
                                Fifo queue(node, root);
                                for (std::uint64_t i = 1; i <= 3; ++i)
                                    EXPECT_TRUE(queue.push(i).wait());
                                return root;
                            },
                            [](gas::Node& node, ptr<Fifo::Root> root) { return Fifo(node, root); },
                            [](Fifo& queue, std::uint64_t count) {
                                if (count < 100) {
                                    EXPECT_TRUE(queue.push(kOther + count).wait());
                                }
                            }};
    // All but what node 0 has pushed.
    const auto drain = [](Fifo& queue) {
        std::vector<std::uint64_t> out;
        std::uint64_t next = kOther;
        for (;;) {
            const auto popped = queue.pop().wait();
            EXPECT_TRUE(popped);
            if (!popped || !*popped) return out;
            if (**popped < kOther)
                out.push_back(**popped);
            else
                EXPECT_EQ(**popped, next++);
        }
    };
    using Values = std::vector<std::uint64_t>;
    expect_whole(
        scene, "push", [](Fifo& queue) { return queue.push(9); },
        [=](Fifo& queue) {
            const Values left = drain(queue);
            EXPECT_TRUE(left == Values({1, 2, 3}) || left == Values({1, 2, 3, 9}));
            return left.size() == 4;
        });
    expect_whole(
        scene, "pop", [](Fifo& queue) { return queue.pop(); },
        [=](Fifo& queue) {
            Values left = drain(queue);
            if (left == Values({2, 3})) return true;
            std::sort(left.begin(), left.end());  // It may have gone back to the end.
            EXPECT_EQ(left, Values({1, 2, 3}));
            return false;
        });
}

// With the name that others have for it.
struct Keys : Set {
    using Root = Set::Item;
    using Set::Set;
};

TEST(GasCancel, ListSetIsWhole) {
    const Scene<Keys> scene{"ListSet",
                            [](gas::Node& node) {
                                const auto first = Set::create(node).value();
                                Keys set(node, first);
                                for (std::uint64_t key = 1; key <= 3; ++key)
                                    EXPECT_TRUE(set.insert(key * 2).wait());
                                return first;
                            },
                            [](gas::Node& node, ptr<Set::Item> first) { return Keys(node, first); },
                            [](Keys& set, std::uint64_t count) {
                                const std::uint64_t key = 3 + count / 2 % 2 * 2;
                                const bool adds = count % 2 == 0;
                                EXPECT_TRUE(adds ? set.insert(key).wait() : set.erase(key).wait());
                            }};
    bool seen = false;
    const auto yes = [](bool there) { return there; };
    const auto has = [](Keys& set, std::uint64_t key) { return set.contains(key).wait().value(); };
    expect_whole(
        scene, "insert", [](Keys& set) { return set.insert(9); },
        [=](Keys& set) { return has(set, 2) && has(set, 4) && has(set, 6) && has(set, 9); });
    expect_whole(
        scene, "erase", [](Keys& set) { return set.erase(4); },
        [=](Keys& set) { return has(set, 2) && !has(set, 4) && has(set, 6); });
    expect_whole(
        scene, "contains", [&](Keys& set) { return look(set.contains(6), yes, seen); },
        [&](Keys& set) { return has(set, 2) && has(set, 4) && has(set, 6) && seen; });
}

TEST(GasCancel, CounterCountsOnceOrNot) {
    using gas::Counter;
    const Scene<Counter> scene{
        "Counter", [](gas::Node& node) { return Counter::create(node).value(); },
        [](gas::Node& node, ptr<Counter::Root> root) { return Counter::open(node, root).value(); },
        [](Counter& counter, std::uint64_t) { EXPECT_TRUE(counter.add(kOther).wait()); }};
    const auto rest = [](Counter& counter) { return counter.sum().wait().value() % kOther; };
    expect_whole(
        scene, "add", [](Counter& counter) { return counter.add(5); },
        [=](Counter& counter) { return rest(counter) == 5; });
    bool seen = false;
    const auto whole = [](std::uint64_t sum) { return sum % kOther == 0; };
    expect_whole(
        scene, "sum", [&](Counter& counter) { return look(counter.sum(), whole, seen); },
        [&](Counter& counter) { return rest(counter) == 0 && seen; });
}

struct Pair {
    std::uint64_t first = 0, second = 0;
    bool operator==(const Pair&) const = default;
};

using Pairs = gas::Array<Pair>;
constexpr std::uint64_t kBlock = 4, kFrom = 2, kCount = 9;  // Parts of four blocks.

// How many of those are `wanted`; the others must be as they were.
std::uint64_t changed(Pairs& pairs, const Pair& wanted) {
    std::array<Pair, kCount> found;
    EXPECT_TRUE(pairs.read(kFrom, found).wait());
    for (const Pair& pair : found) EXPECT_TRUE(pair == wanted || pair == Pair()) << pair.first;
    return static_cast<std::uint64_t>(std::count(found.begin(), found.end(), wanted));
}

TEST(GasCancel, ArrayIsWrittenWhole) {
    const Scene<Pairs> scene{
        "Array", [](gas::Node& node) { return Pairs::create(node, 64, kBlock).value(); },
        [](gas::Node& node, ptr<Pairs::Root> root) { return Pairs::open(node, root).value(); },
        [](Pairs& pairs, std::uint64_t count) {
            EXPECT_TRUE(pairs.set(40, {count, count}).wait());
        }};
    static constexpr Pair kNew{6, 7};
    std::array<Pair, kCount> pairs;
    pairs.fill(kNew);
    expect_whole(
        scene, "set", [](Pairs& array) { return array.set(kFrom, kNew); },
        [](Pairs& array) { return changed(array, kNew) == 1; });
    expect_whole(
        scene, "write", [&](Pairs& array) { return array.write(kFrom, pairs); },
        [](Pairs& array) { return changed(array, kNew) == kCount; });
    bool seen = false;
    std::array<Pair, kCount> found;
    const auto is_old = [](const Pair& pair) { return pair == Pair(); };
    const auto read = [](Pairs& array, std::span<Pair> into) -> Task<Result<bool>> {
        const auto done = co_await array.read(kFrom, into);
        if (!done) co_return done.error();
        co_return true;
    };
    const auto all_old = [&](bool) { return std::all_of(found.begin(), found.end(), is_old); };
    expect_whole(
        scene, "read",
        [&](Pairs& array) {
            found.fill(kNew);
            return look(read(array, found), all_old, seen);
        },
        [&](Pairs& array) { return changed(array, kNew) == 0 && seen; });
    const auto get = [](Pairs& array) -> Task<Result<Pair>> {
        co_return co_await array.get(kFrom);
    };
    expect_whole(
        scene, "get", [&](Pairs& array) { return look(get(array), is_old, seen); },
        [&](Pairs& array) { return changed(array, kNew) == 0 && seen; });
}

// As a cell alone: what maps are made of has been given up above.
struct Cell : gas::Versioned<Pair> {
    using Root = gas::Versioned<Pair>::Cell;
    Cell(gas::Node& node, ptr<Root> root) : Versioned(node.lanes(), root), loop(node.loop()) {}
    rdma::Loop& loop;
};

TEST(GasCancel, VersionedIsWhole) {
    const auto next = [](Pair pair) { return Pair{pair.first + 1, pair.second}; };
    const Scene<Cell> scene{
        "Versioned", [](gas::Node& node) { return node.allocate(Cell::Root()).value(); },
        [](gas::Node& node, ptr<Cell::Root> root) { return Cell(node, root); },
        [](Cell& cell, std::uint64_t) {
            const auto other = [](Pair pair) { return Pair{pair.first, pair.second + 1}; };
            EXPECT_TRUE(cell.loop.run(cell.update(other)));
        }};
    const auto first = [](Cell& cell) { return cell.loop.run(cell.read()).value().first; };
    expect_whole(
        scene, "update", [=](Cell& cell) { return cell.update(next); },
        [=](Cell& cell) {
            const std::uint64_t before = first(cell);
            EXPECT_TRUE(cell.loop.run(cell.update(next)));
            return before == 1 && first(cell) == 2;
        });
    bool seen = false;
    const auto is_old = [](const Pair& pair) { return pair.first == 0; };
    expect_whole(
        scene, "read", [&](Cell& cell) { return look(cell.read(), is_old, seen); },
        [&](Cell& cell) { return first(cell) == 0 && seen; });
}

}  // namespace
}  // namespace feroce::sim
