// The second node of a cluster whose first is Python: uses by C++ types what Python has made by
// names and sizes, and says what it finds: node_peer PORT. tests/python/space_test.py is the other
// side.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/short_bytes.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/gas/share.hpp"
#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/lease_lock.hpp"

using namespace feroce;
using namespace feroce::gas;

namespace {

struct Text {
    char characters[32];
};

constexpr int kRounds = 200;

// Counts under a lock what nothing else protects; the other side does the same.
void count_under_lock(Node& node) {
    const auto line = node.share<ALock::Line>("lock").value();
    const auto counter = node.share<plain<std::uint64_t>>("guarded").value();
    ALock lock(node.lanes(), line);
    for (int i = 0; i < kRounds; ++i) {
        node.loop().run(lock.lock()).value();
        const std::uint64_t seen = node.read(counter).value();
        node.write(counter, seen + 1).value();
        node.loop().run(lock.unlock()).value();
    }
    node.barrier().value();
    std::printf("guarded %lu\n", node.read(counter).value());
}

void use_memory(Node& node) {
    const auto counter = node.share<nic<std::uint64_t>>("counter").value();
    node.fetch_add(counter, 5).value();
    const auto text = node.find<Text>("text").value();
    Text found = node.read(text).value();
    std::printf("text %.32s\n", found.characters);
    std::snprintf(found.characters, sizeof found.characters, "written by C++");
    node.write(text, found).value();
    const auto own = node.allocate(Text{"memory of C++"}).value();
    node.publish("own", own).value();
}

void use_maps(Node& node) {
    using Map = HashMap<ShortKey, ShortValue>;
    using Numbers = HashMap<std::uint64_t, std::uint64_t>;
    auto map = share<Map>(node, "map", 64).value();
    auto numbers = share<Numbers>(node, "numbers", 64).value();
    map.put(ShortKey("of C++"), ShortValue("value of C++")).wait().value();
    for (std::uint64_t key = 0; key < 10; ++key)
        numbers.update(key, [](Numbers::Value& value) { value = value.value_or(0) + 1; })
            .wait()
            .value();
    node.barrier().value();
    const auto value = map.get(ShortKey("of Python")).wait().value();
    std::printf("map %s\n", std::string(value.value_or(ShortValue("nothing")).text()).c_str());
    std::printf("number %lu\n", numbers.get(3).wait().value().value_or(0));
}

// Dies with the lock, if it is told so.
void hold_lease(Node& node, bool dies) {
    const auto line = node.share<LeaseLock::Line>("lease").value();
    LeaseLock lock(node.lanes(), line);
    node.loop().run(lock.lock()).value();
    node.barrier().value();
    if (dies) std::_Exit(9);
    node.loop().run(lock.unlock()).value();
}

}  // namespace

int main(int count, char** argv) {
    NodeOptions options;
    options.placement = {.rank = 1,
                         .size = 2,
                         .seed = "127.0.0.1",
                         .port = static_cast<std::uint16_t>(std::atoi(argv[1]))};
    const std::string_view what = count > 2 ? argv[2] : "";
    Node node = Node::join(options).value();
    if (what == "die") hold_lease(node, true);
    if (what == "only-join") {
        node.leave().value();
        return 0;
    }
    use_memory(node);
    node.barrier().value();
    count_under_lock(node);
    use_maps(node);
    hold_lease(node, false);
    node.leave().value();
    std::puts("left");
}
