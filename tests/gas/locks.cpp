// Every lock and the hash map on real threads of real processes: a counter that is read and written
// under the lock must have counted everybody. Litmus for the CPU's side of the locks, where the
// simulator has only one thread.   gas_locks [ROUNDS]
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/rw_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"

namespace rdma = feroce::rdma;
using namespace feroce::gas;

namespace {

constexpr std::uint16_t kThreads = 2;

struct alignas(64) LockLine {
    std::uint64_t words[8] = {};
};

using Map = HashMap<std::uint64_t, std::uint64_t>;
using Factory = std::unique_ptr<Mutex> (*)(Lanes&, ptr<LockLine>);

template <class Lock>
std::unique_ptr<Mutex> make(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<Lock>(lanes, line.as<typename Lock::Line>());
}

struct Case {
    const char* name;
    Factory make;
};
constexpr Case kCases[] = {
    {"spin", make<SpinLock>}, {"ticket", make<TicketLock>}, {"mcs", make<McsLock>},
    {"alock", make<ALock>},   {"fair", make<FairLock>},
};

rdma::Task<Result<>> count_up(Mutex& mutex, ptr<std::uint64_t> counter, std::uint64_t rounds) {
    Lanes& lanes = mutex.lanes();
    for (std::uint64_t i = 0; i < rounds; ++i) {
        if (const auto locked = co_await mutex.lock(); !locked) co_return locked;
        const auto value = co_await lanes.read(counter);
        if (!value) co_return value.error();
        const auto written = co_await lanes.write(counter, *value + 1);
        if (!written) co_return written;
        if (const auto freed = co_await mutex.unlock(); !freed) co_return freed;
    }
    co_return Result<>();
}

// Counts in the map under the writer's side of a reader-writer lock, and looks under the other.
rdma::Task<Result<>> count_in_map(Map& map, RwLock& lock, std::uint64_t rounds) {
    for (std::uint64_t i = 0; i < rounds; ++i) {
        if (const auto locked = co_await lock.lock(); !locked) co_return locked;
        const auto value = co_await map.get(i % 10);
        if (!value) co_return value.error();
        const auto put = co_await map.put(i % 10, value->value_or(0) + 1);
        if (!put) co_return put.error();
        if (const auto freed = co_await lock.unlock(); !freed) co_return freed;
        if (const auto locked = co_await lock.lock_shared(); !locked) co_return locked;
        const auto seen = co_await map.get(i % 10);
        if (!seen || !*seen) co_return Error(EIO, "a key of the map is gone");
        if (const auto freed = co_await lock.unlock_shared(); !freed) co_return freed;
    }
    co_return Result<>();
}

// On all threads of this node at a time.
template <class Body>
void on_all_threads(Node& node, Body body) {
    std::vector<std::thread> others;
    for (std::size_t thread = 1; thread < kThreads; ++thread)
        others.emplace_back([&, thread] { body(thread); });
    body(0);
    for (std::thread& other : others) other.join();
    node.barrier().value();
}

void check(const char* name, std::uint64_t counted, std::uint64_t expected) {
    std::printf("%s: %lu of %lu\n", name, counted, expected);
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200;
    NodeOptions options;
    options.placement = placement_from_environment().value();
    options.threads = kThreads;
    Node node = Node::join(options).value();
    const std::uint64_t all = rounds * kThreads * node.size();
    for (const Case& lock : kCases) {
        const auto line = node.share<LockLine>(lock.name).value();
        const auto counter = node.share<std::uint64_t>(std::string("count ") + lock.name).value();
        on_all_threads(node, [&](std::size_t thread) {
            const auto mutex = lock.make(node.lanes(thread), line);
            node.loop(thread).run(count_up(*mutex, counter, rounds)).value();
        });
        check(lock.name, node.read(counter).value(), all);
    }
    if (node.id() == NodeId{0}) node.publish("map", Map::create(node, 2).value()).value();
    const auto root = node.find<Map::Root>("map").value();
    const auto line = node.share<RwLock::Line>("map lock").value();
    on_all_threads(node, [&](std::size_t thread) {
        Map map = Map::open(node, root, thread).value();
        RwLock lock(node.lanes(thread), line);
        node.loop(thread).run(count_in_map(map, lock, rounds)).value();
    });
    Map map = Map::open(node, root).value();
    std::uint64_t sum = 0;
    for (std::uint64_t key = 0; key < 10; ++key) sum += **node.loop().run(map.get(key));
    check("map", sum, all);
    node.leave().value();
}
