// One node of `./feroce bench gas`: single operations, YCSB's mixes on both maps, and the list set
// as Remus' own driver uses it.   gas_table MILLISECONDS
#include <cstdlib>
#include <memory>

#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/list_set.hpp"
#include "feroce/gas/ds/ordered_map.hpp"
#include "gas/workload.hpp"

using namespace feroce::gas;
using feroce::Duration;
using feroce::Prng;
using feroce::bench::measure;
using feroce::bench::Operation;
using feroce::bench::Zipf;
using feroce::rdma::Task;

namespace {

constexpr std::size_t kDeep = 16;  // Operations under way.
constexpr std::uint64_t kKeys = 10'000;
constexpr std::uint64_t kSetKeys = 1024;  // Remus: 1024 to 4096, half of them there.

using Map = HashMap<std::uint64_t, std::uint64_t>;
using Tree = OrderedMap<std::uint64_t, std::uint64_t>;
using Set = ListSet<std::uint64_t>;

struct Item {
    std::uint64_t words[8] = {};
};

template <class T>
Task<Result<>> read_it(Lanes& lanes, ptr<T> from) {
    const auto value = co_await lanes.read(from);
    if (!value) co_return value.error();
    co_return Result<>();
}
template <class T>
Task<Result<>> write_it(Lanes& lanes, ptr<T> to) {
    const value_type_of<T> value{};
    co_return co_await lanes.write(to, value);
}
Task<Result<>> swap_it(Lanes& lanes, ptr<nic<std::uint64_t>> word) {
    const auto found = co_await lanes.compare_exchange(word, 0, 0);
    if (!found) co_return found.error();
    co_return Result<>();
}
Task<Result<>> add_it(Lanes& lanes, ptr<nic<std::uint64_t>> word) {
    const auto before = co_await lanes.fetch_add(word, 1);
    if (!before) co_return before.error();
    co_return Result<>();
}

class Bench {
public:
    Bench(Node& node, Duration time) : node_(node), time_(time) {}

    void operations() {
        const NodeId other{static_cast<std::uint16_t>((number() + 1) % node_.size())};
        const auto word = node_.allocate_on(other, nic<std::uint64_t>()).value();
        const auto item = node_.allocate_on(other, Item()).value();
        const auto own = node_.allocate(Item()).value();
        Lanes& lanes = node_.lanes();
        run("read 8 B", [&, word] { return read_it(lanes, word); });
        run("read 64 B", [&, item] { return read_it(lanes, item); });
        run("write 8 B", [&, word] { return write_it(lanes, word); });
        run("write 64 B", [&, item] { return write_it(lanes, item); });
        run("compare_exchange", [&, word] { return swap_it(lanes, word); });
        run("fetch_add", [&, word] { return add_it(lanes, word); });
        run("read 64 B, own node", [&, own] { return read_it(lanes, own); });
    }

    // YCSB: A half updates, B one in twenty, C none.
    template <class M>
    void maps(const std::string& name, ptr<typename M::Root> root) {
        fill(M::open(node_, root).value());
        for (const auto& [mix, updates] :
             {std::pair(" A", 50u), std::pair(" B", 5u), std::pair(" C", 0u)})
            for (const std::size_t tasks : {std::size_t{1}, std::size_t{8}}) {
                std::vector<Operation> operations;
                for (std::size_t i = 0; i < tasks; ++i) {
                    const auto map = std::make_shared<M>(M::open(node_, root).value());
                    operations.push_back([this, map, part = updates]() -> Task<Result<>> {
                        return use(*map, zipf_.draw(random_), random_.below(100) < part);
                    });
                }
                meet();
                measure(node_.lanes(), name + mix, time_, operations);
            }
    }

    void sets(ptr<Set::Item> first) {
        Set set(node_, first);
        for (std::uint64_t key = number(); key < kSetKeys; key += node_.size())
            if (key % 4 < 2) node_.loop().run(set.insert(key)).value();
        for (const auto& [name, updates] :
             {std::pair("list set, lookups", 0u), std::pair("list set, half updates", 50u)}) {
            meet();
            const auto operation = [this, &set, part = updates] {
                return use(set, random_.below(kSetKeys), random_.below(100), part);
            };
            measure(node_.lanes(), name, time_, {operation});
        }
    }

    void meet() { node_.barrier().value(); }

private:
    std::uint64_t number() const { return static_cast<std::uint64_t>(node_.id()); }

    template <class Each>
    void run(const char* name, Each each) {
        for (const std::size_t tasks : {std::size_t{1}, kDeep}) {
            meet();
            measure(node_.lanes(), name, time_, std::vector<Operation>(tasks, Operation(each)));
        }
    }

    template <class M>
    void fill(M map) {
        for (std::uint64_t key = number(); key < kKeys; key += node_.size())
            node_.loop().run(map.put(key, key)).value();
        meet();
    }
    template <class M>
    static Task<Result<>> use(M& map, std::uint64_t key, bool update) {
        if (update) {
            const auto put = co_await map.put(key, key);
            if (!put) co_return put.error();
        } else {
            const auto got = co_await map.get(key);
            if (!got) co_return got.error();
        }
        co_return Result<>();
    }
    static Task<Result<>> use(Set& set, std::uint64_t key, std::uint64_t dice, unsigned updates) {
        if (dice >= updates) co_return status_of(co_await set.contains(key));
        if (dice < updates / 2) co_return status_of(co_await set.insert(key));
        co_return status_of(co_await set.erase(key));
    }
    static Result<> status_of(const Result<bool>& done) {
        if (!done) return done.error();
        return {};
    }

    Node& node_;
    const Duration time_;
    const Zipf zipf_{kKeys};
    Prng random_{static_cast<std::uint64_t>(node_.id()) + 1};
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: gas_table MILLISECONDS\n");
        return 2;
    }
    Node node = Node::join().value();
    if (node.id() == NodeId{0}) {
        node.publish("map", Map::create(node, kKeys / 8).value()).value();
        node.publish("tree", Tree::create(node).value()).value();
        node.publish("set", Set::create(node).value()).value();
    }
    Bench bench(node, std::chrono::milliseconds(std::atoi(argv[1])));
    bench.operations();
    bench.maps<Map>("hash map, YCSB", node.find<Map::Root>("map").value());
    bench.maps<Tree>("ordered map, YCSB", node.find<Tree::Root>("tree").value());
    bench.sets(node.find<Set::Item>("set").value());
    bench.meet();
    node.leave().value();
}
