// Operations allocate nothing: operator new is counted around many of them, on the own node and on
// another. Locks and containers are made of several tasks, whose frames come from a pool.
#include <cstdio>
#include <memory>

#include "counting_new.hpp"
#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/ordered_map.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"

using namespace feroce::gas;

namespace {

constexpr int kWarm = 200;
constexpr int kRounds = 1000;

struct Item {
    std::uint64_t words[16] = {};
};

struct Locks {
    SpinLock::Line spin;
    McsLock::Line mcs;
    ALock::Line alock, fair;
};

using Map = HashMap<std::uint64_t, std::uint64_t>;
using Tree = OrderedMap<std::uint64_t, std::uint64_t>;

// How many there are in a round of an operation, once pools are as large as they get. How large
// that is depends on how the two nodes meet at a lock, so a round in which one grew is repeated: an
// operation that allocates does so in every round.
template <class Body>
std::uint64_t allocations_of(Body body) {
    constexpr int kRepetitions = 5;
    for (int i = 0; i < kWarm; ++i) body(i);
    std::uint64_t count = 0;
    for (int repetition = 0; repetition < kRepetitions; ++repetition) {
        const std::uint64_t before = feroce::bench::allocations();
        for (int i = 0; i < kRounds; ++i) body(i);
        count = feroce::bench::allocations() - before;
        if (count == 0) break;
    }
    return count;
}

std::uint64_t of_operations(Node& node) {
    const auto item = node.share<Item>("item").value();
    const auto word = node.share<nic<std::uint64_t>>("word").value();
    node.barrier().value();
    return allocations_of([&](int) {
        Item value = node.read(item).value();
        node.write(item, value).value();
        node.fetch_add(word, 1).value();
        node.compare_exchange(word, 0, 1).value();
        auto both = node.lanes().chain(word.node());
        std::uint64_t found = 0;
        both.fetch_add(word, 1, found).read(item, value);
        both.wait().value();
    });
}

std::uint64_t of_locks(Node& node) {
    const auto lines = node.share<Locks>("locks").value();
    SpinLock spin(node.lanes(), lines.field<&Locks::spin>());
    McsLock mcs(node.lanes(), lines.field<&Locks::mcs>());
    ALock alock(node.lanes(), lines.field<&Locks::alock>());
    FairLock fair(node.lanes(), lines.field<&Locks::fair>());
    Mutex* const all[] = {&spin, &mcs, &alock, &fair};
    node.barrier().value();
    return allocations_of([&](int) {
        for (Mutex* mutex : all) {
            node.loop().run(mutex->lock()).value();
            node.loop().run(mutex->unlock()).value();
            if (node.loop().run(mutex->try_lock()).value())
                node.loop().run(mutex->unlock()).value();
        }
    });
}

template <class M>
std::uint64_t of_map(Node& node, M map) {
    return allocations_of([&](int i) {
        const auto key = static_cast<std::uint64_t>(i % 50);
        static_cast<void>(node.loop().run(map.put(key, key)).value());
        static_cast<void>(node.loop().run(map.get(key)).value());
    });
}

std::uint64_t of_maps(Node& node) {
    if (node.id() == NodeId{0}) {
        node.publish("map", Map::create(node, 64).value()).value();
        node.publish("tree", Tree::create(node).value()).value();
    }
    Map map = Map::open(node, node.find<Map::Root>("map").value()).value();
    Tree tree = Tree::open(node, node.find<Tree::Root>("tree").value()).value();
    node.barrier().value();
    return of_map(node, std::move(map)) + of_map(node, std::move(tree));
}

}  // namespace

int main() {
    Node node = Node::join().value();
    const std::uint64_t count = of_operations(node) + of_locks(node) + of_maps(node);
    std::printf("%lu allocations\n", count);
    // They would have been counted.
    const std::uint64_t before = feroce::bench::allocations();
    const auto made = std::make_unique<Item>();
    std::printf("%s\n", feroce::bench::allocations() > before && made ? "counted" : "not counted");
    node.leave().value();
}
