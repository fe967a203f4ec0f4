// A hash map that all nodes share, and a lock that all of them take:
// feroce launch -n 3 -- ./gas_shared_map
#include <cstdio>

#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/gas/sync/alock.hpp"

using namespace feroce::gas;
using feroce::rdma::Task;

using Map = HashMap<std::uint64_t, std::uint64_t>;

// Adds one to the value of a key. The lock makes the two steps one.
Task<Result<>> count(Map& map, ALock& lock, std::uint64_t key) {
    auto guard = co_await lock.guard();
    if (!guard) co_return guard.error();
    const auto value = co_await map.get(key);
    if (!value) co_return value.error();
    const auto put = co_await map.put(key, value->value_or(0) + 1);
    if (!put) co_return put.error();
    co_return co_await guard->release();
}

int main() {
    Node node = Node::join().value();
    if (node.id() == NodeId{0}) node.publish("map", Map::create(node, 100).value()).value();
    Map map = Map::open(node, node.find<Map::Root>("map").value()).value();
    ALock lock(node.lanes(), node.share<ALock::Line>("lock").value());
    for (std::uint64_t key = 0; key < 50; ++key) node.loop().run(count(map, lock, key)).value();
    node.barrier().value();
    std::uint64_t sum = 0;
    for (std::uint64_t key = 0; key < 50; ++key) sum += **node.loop().run(map.get(key));
    std::printf("50 keys counted by %d nodes: %lu\n", node.size(), sum);
    node.leave().value();
}
