// Operations allocate nothing: operator new is counted around many of them, on the own node and on
// another.
#include <cstdio>

#include "counting_new.hpp"
#include "feroce/gas/node.hpp"

using namespace feroce::gas;

namespace {

struct Item {
    std::uint64_t words[16] = {};
};

std::uint64_t allocations_of(Node& node, ptr<Item> item, ptr<nic<std::uint64_t>> word) {
    Item value = node.read(item).value();
    const std::uint64_t before = feroce::bench::allocations();
    for (int i = 0; i < 1000; ++i) {
        value = node.read(item).value();
        node.write(item, value).value();
        node.fetch_add(word, 1).value();
        node.compare_exchange(word, 0, 1).value();
        auto both = node.lanes().chain(word.node());
        std::uint64_t found = 0;
        both.fetch_add(word, 1, found).read(item, value);
        both.wait().value();
    }
    return feroce::bench::allocations() - before;
}

}  // namespace

int main() {
    Node node = Node::join().value();
    const auto item = node.share<Item>("item").value();
    const auto word = node.share<nic<std::uint64_t>>("word").value();
    node.barrier().value();
    std::printf("%lu allocations\n", allocations_of(node, item, word));
    node.leave().value();
}
