// One counter for a cluster. Build it, then: feroce launch -n 4 -- ./gas_counter
#include <cstdio>

#include "feroce/gas/node.hpp"

using namespace feroce::gas;

int main() {
    Node node = Node::join().value();
    const auto counter = node.share<nic<std::uint64_t>>("counter").value();
    const std::uint64_t before = node.fetch_add(counter, 1).value();
    node.barrier().value();
    std::printf("node %d of %d counted after %lu others; all are %lu\n", int(node.id()),
                node.size(), before, node.read(counter).value());
    node.leave().value();
}
