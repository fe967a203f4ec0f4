// One lock that all nodes want at once, around a counter that only it protects:
// feroce launch -n 3 -- ./gas_contended_lock
#include <chrono>
#include <cstdio>

#include "feroce/gas/node.hpp"
#include "feroce/gas/sync/alock.hpp"

using namespace feroce::gas;
using feroce::rdma::Task;

using Word = plain<std::uint64_t>;  // Neither NIC nor CPU change it by atomics.

Task<Result<>> count(Lanes& lanes, ALock& lock, ptr<Word> counter) {
    auto guard = co_await lock.guard();
    if (!guard) co_return guard.error();
    const auto value = co_await lanes.read(counter);
    if (!value) co_return value.error();
    const auto written = co_await lanes.write(counter, *value + 1);
    if (!written) co_return written.error();
    co_return co_await guard->release();
}

int main() {
    constexpr std::uint64_t kRounds = 2000;
    Node node = Node::join().value();
    const auto counter = node.share<Word>("counter").value();
    ALock lock(node.lanes(), node.share<ALock::Line>("lock").value());
    node.barrier().value();
    const auto begin = node.loop().now();
    for (std::uint64_t i = 0; i < kRounds; ++i)
        node.loop().run(count(node.lanes(), lock, counter)).value();
    const std::chrono::duration<double, std::micro> time = node.loop().now() - begin;
    std::printf("took the lock %llu times, every %.1f us\n",
                static_cast<unsigned long long>(kRounds),
                time.count() / static_cast<double>(kRounds));
    node.barrier().value();
    const auto counted = node.read(counter).value();
    if (node.id() == NodeId{0})
        std::printf("%d nodes counted to %llu\n", node.size(),
                    static_cast<unsigned long long>(counted));
    node.leave().value();
    return counted == kRounds * node.size() ? 0 : 1;
}
