// A hash map that all nodes share and change at the same time:
// feroce launch -n 3 -- ./gas_shared_map
#include <cstdio>

#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/gas/share.hpp"

using namespace feroce::gas;

using Map = HashMap<std::uint64_t, std::uint64_t>;

int main() {
    Node node = Node::join().value();
    Map map = share<Map>(node, "map", 100).value();  // With 100 buckets on each node.
    // The first node that sees a key inserts it, the others add to it: one step each.
    const auto add_one = [](Map::Value& value) { value = value.value_or(0) + 1; };
    for (std::uint64_t key = 0; key < 50; ++key) map.update(key, add_one).wait().value();
    node.barrier().value();
    std::uint64_t sum = 0;
    map.for_each([&](std::uint64_t, std::uint64_t value) { sum += value; }).wait().value();
    std::printf("%lu keys counted by %d nodes: %lu\n", map.size().wait().value(), node.size(), sum);
    node.leave().value();
}
