// A node is killed, and the others go on without it: first_dies [NODE]. They are told at one
// barrier and pass the next ones, find names that were given before, give new ones, share,
// broadcast, make a map, and free memory that others could have been reading.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "counted.hpp"
#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/node.hpp"

using namespace feroce::gas;
using namespace std::chrono_literals;

namespace {

using Map = HashMap<std::uint64_t, std::uint64_t>;

void require(bool condition, const char* what) {
    if (condition) return;
    std::printf("FAILED: %s\n", what);
    std::exit(1);
}

std::string name_of(const char* what, int node) {
    return what + std::to_string(node);
}

void expect_words(Node& node, const char* what, int lost) {
    for (int i = 0; i < node.size(); ++i) {
        if (i == lost) continue;
        const auto word = node.find<std::uint64_t>(name_of(what, i)).value();
        require(node.read(word).value() == static_cast<std::uint64_t>(i), "a name was kept");
    }
}

void give_names(Node& node, int lost) {
    const auto own = static_cast<std::uint64_t>(node.id());
    expect_words(node, "old", lost);
    node.publish(name_of("new", int(own)), node.allocate(own).value()).value();
    node.barrier().value();
    expect_words(node, "new", lost);
    const auto counter = node.share<nic<std::uint64_t>>("counter").value();
    node.fetch_add(counter, 1).value();
    node.barrier().value();
    require(node.read(counter).value() == node.size() - 1u, "all who live counted");
    const NodeId last{static_cast<std::uint16_t>(lost + 1 == node.size() ? 0 : node.size() - 1)};
    require(node.broadcast(own, last).value() == static_cast<std::uint64_t>(last), "broadcast");
}

void use_map(Node& node, int lost) {
    const auto own = static_cast<std::uint64_t>(node.id());
    if (own == (lost == 0 ? 1u : 0u)) node.publish("map", Map::create(node, 4).value()).value();
    Map map = Map::open(node, node.find<Map::Root>("map").value()).value();
    for (std::uint64_t key = 0; key < 20; ++key)
        map.put(key * node.size() + own, own).wait().value();
    node.barrier().value();
    require(map.size().wait().value() == 20u * (node.size() - 1u), "the map has all");
}

void free_memory(Node& node) {
    for (int i = 0; i < 100; ++i) node.epochs().retire(node.allocate(std::uint64_t{1}).value());
    for (int i = 0; i < 600 && node.epochs().retired() != 0; ++i) {
        node.loop().run(node.epochs().collect()).value();
        node.loop().run([](feroce::rdma::Loop& loop) -> feroce::rdma::Task<void> {
            static_cast<void>(co_await loop.sleep(100ms));
        }(node.loop()));
    }
    require(node.epochs().retired() == 0, "memory is freed");
}

}  // namespace

int main(int count, char** arguments) {
    const int lost = count > 1 ? std::atoi(arguments[1]) : 0;
    NodeOptions options;
    options.placement = placement_from_environment().value();
    options.lease = {.time = 200ms, .grace = 200ms};
    Node node = Node::join(options).value();
    const auto own = static_cast<std::uint64_t>(node.id());
    node.publish(name_of("old", int(own)), node.allocate(own).value()).value();
    Counted counted(node, lost);
    node.barrier().value();
    counted.add();
    if (int(own) == lost) {
        require(counted.reaches(node.size()), "all have left the barrier");
        std::raise(SIGKILL);
    }
    const auto met = node.barrier();
    require(!met, "the loss is told");
    std::printf("%s\n", met.error().why.c_str());
    node.barrier().value();
    give_names(node, lost);
    use_map(node, lost);
    free_memory(node);
    node.leave().value();
    std::printf("went on without node %d\n", lost);
}
