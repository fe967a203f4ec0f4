// One node of `./feroce bench locks`: its threads take locks of a table that is spread over all
// nodes, own ones and others' in the wanted proportion, with nothing to do while they hold one.
//
//   lock_table THREADS MILLISECONDS LOCKS[,LOCKS...] LOCALITY[,LOCALITY...]
//
// A line of JSON a cell and node: how long each acquisition took. Two clusters of the same
// processes: one in which atomics on the own node go through the device, as they must on most NICs
// (what ALock's paper compares with), and one that knows that they need not.
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "feroce/gas/ds/array.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/gas/sync/alock.hpp"
#include "feroce/gas/sync/mcs_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "histogram.hpp"

namespace rdma = feroce::rdma;
using namespace feroce::gas;
using feroce::Duration;
using feroce::Instant;
using feroce::bench::Histogram;

namespace {

struct alignas(64) LockLine {
    std::uint64_t words[8] = {};
};

using Factory = std::unique_ptr<Mutex> (*)(Lanes&, ptr<LockLine>);

template <class Lock>
std::unique_ptr<Mutex> make(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<Lock>(lanes, line.as<typename Lock::Line>());
}

std::unique_ptr<Mutex> make_published(Lanes& lanes, ptr<LockLine> line) {
    return std::make_unique<ALock>(lanes, line.as<ALock::Line>(),
                                   ALock::Options{.fast_path = false});
}

struct Kind {
    const char* name;
    Factory make;
    bool loopback;
};
constexpr Kind kKinds[] = {
    {"spin loopback", make<SpinLock>, true},
    {"mcs loopback", make<McsLock>, true},
    {"spin mixed", make<SpinLock>, false},
    {"mcs mixed", make<McsLock>, false},
    {"alock published", make_published, false},
    {"alock", make<ALock>, false},
    {"fair", make<FairLock>, false},
};

struct Plan {
    std::uint16_t threads = 1;
    Duration time{};
    std::vector<std::uint64_t> locks;
    std::vector<std::uint64_t> locality;  // In percent.
};

std::vector<std::uint64_t> numbers(const char* text) {
    std::vector<std::uint64_t> out;
    std::stringstream words{text};
    for (std::string word; std::getline(words, word, ',');) out.push_back(std::stoull(word));
    return out;
}

Node join(const Plan& plan, bool loopback) {
    NodeOptions options;
    options.placement = placement_from_environment().value();
    options.threads = plan.threads;
    options.trust_global_atomics = !loopback;
    if (loopback)
        options.placement.port = static_cast<std::uint16_t>(options.placement.port + 10'000);
    return Node::join(options).value();
}

// What one thread knows of a table of locks: handles on all, the own node's apart.
struct Table {
    std::vector<std::unique_ptr<Mutex>> own, others;
};

Table open_table(Node& node, std::size_t thread, const Kind& kind, Array<LockLine>& lines,
                 std::uint64_t count) {
    Table table;
    for (std::uint64_t i = 0; i < count; ++i) {
        auto& side = lines.at(i).node() == node.id() ? table.own : table.others;
        side.push_back(kind.make(node.lanes(thread), lines.at(i)));
    }
    return table;
}

struct Times {
    Histogram local, remote;
};

rdma::Task<Result<>> work(rdma::Loop& loop, Table& table, std::uint64_t locality, Duration time,
                          feroce::Prng& random, Times& times) {
    Instant start = loop.now();
    for (const Instant end = start + time; start < end;) {
        const bool local = table.others.empty() || random.below(100) < locality;
        auto& side = local ? table.own : table.others;
        Mutex& mutex = *side[random.below(side.size())];
        if (const auto locked = co_await mutex.lock(); !locked) co_return locked;
        const Instant held = loop.now();
        (local ? times.local : times.remote)
            .add(static_cast<std::uint64_t>((held - start).count()));
        if (const auto freed = co_await mutex.unlock(); !freed) co_return freed;
        start = loop.now();
    }
    co_return Result<>();
}

class Bench {
public:
    explicit Bench(const Plan& plan)
        : plan_(plan), mixed_(join(plan, false)), loopback_(join(plan, true)), meet_(plan.threads) {
        for (const Kind& kind : kKinds) {
            Node& node = node_of(kind);
            if (node.id() == NodeId{0})
                node.publish(kind.name, Array<LockLine>::create(node, most()).value()).value();
            roots_.push_back(node.find<Array<LockLine>::Root>(kind.name).value());
        }
        mixed_.barrier().value();
    }

    void run() {
        count_round_trips();
        std::vector<std::thread> others;
        for (std::size_t thread = 1; thread < plan_.threads; ++thread)
            others.emplace_back([this, thread] { run_thread(thread); });
        run_thread(0);
        for (std::thread& other : others) other.join();
        loopback_.leave().value();
        mixed_.leave().value();
    }

private:
    Node& node_of(const Kind& kind) { return kind.loopback ? loopback_ : mixed_; }
    // Each node has a lock of its own at least.
    std::uint64_t count_of(std::uint64_t locks) const {
        return std::max<std::uint64_t>(locks, mixed_.size());
    }
    std::uint64_t most() const {
        std::uint64_t out = mixed_.size();
        for (const std::uint64_t locks : plan_.locks) out = std::max(out, locks);
        return out;
    }

    // What a free lock of another node costs; the last node asks, while nobody else does anything.
    void count_round_trips() {
        const bool asks = mixed_.size() > 1 && static_cast<int>(mixed_.id()) + 1 == mixed_.size();
        for (std::size_t k = 0; asks && k < std::size(kKinds); ++k) {
            Node& node = node_of(kKinds[k]);
            auto lines = Array<LockLine>::open(node, roots_[k]).value();
            const auto mutex = kKinds[k].make(node.lanes(), lines.at(0));
            const auto trips = [&] { return node.lanes().traffic().round_trips; };
            const std::uint64_t before = trips();
            node.loop().run(mutex->lock()).value();
            const std::uint64_t held = trips();
            node.loop().run(mutex->unlock()).value();
            std::printf("{\"free\": \"%s\", \"acquire\": %lu, \"release\": %lu}\n", kKinds[k].name,
                        held - before, trips() - held);
        }
        mixed_.barrier().value();
    }

    void run_thread(std::size_t thread) {
        feroce::Prng random(static_cast<std::uint64_t>(mixed_.id()) * 256 + thread + 1);
        for (const std::uint64_t locks : plan_.locks)
            for (std::size_t k = 0; k < std::size(kKinds); ++k) {
                Node& node = node_of(kKinds[k]);
                auto lines = Array<LockLine>::open(node, roots_[k], thread).value();
                Table table = open_table(node, thread, kKinds[k], lines, count_of(locks));
                for (const std::uint64_t locality : plan_.locality) {
                    Times times;
                    meet_all(thread);
                    node.loop(thread)
                        .run(work(node.loop(thread), table, locality, plan_.time, random, times))
                        .value();
                    collect(thread, times);
                    if (thread == 0) print(kKinds[k].name, locks, locality);
                }
            }
    }

    void meet_all(std::size_t thread) {
        if (thread == 0) {
            all_.local.clear();
            all_.remote.clear();
            mixed_.barrier().value();
        }
        meet_.arrive_and_wait();
    }
    void collect(std::size_t thread, const Times& times) {
        // One after another: each thread in the phase of its number.
        for (std::size_t turn = 0; turn < plan_.threads; ++turn) {
            if (turn == thread) {
                all_.local.merge(times.local);
                all_.remote.merge(times.remote);
            }
            meet_.arrive_and_wait();
        }
    }
    void print(const char* kind, std::uint64_t locks, std::uint64_t locality) const {
        std::printf("{\"kind\": \"%s\", \"locks\": %lu, \"locality\": %lu, \"seconds\": %f, ", kind,
                    locks, locality, std::chrono::duration<double>(plan_.time).count());
        std::printf("\"local\": ");
        all_.local.print();
        std::printf(", \"remote\": ");
        all_.remote.print();
        std::printf("}\n");
    }

    const Plan plan_;
    Node mixed_, loopback_;
    std::barrier<> meet_;
    std::vector<ptr<Array<LockLine>::Root>> roots_;  // By kind.
    Times all_;  // Of this node's threads, in the cell that runs.
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: lock_table THREADS MILLISECONDS LOCKS,... LOCALITY,...\n");
        return 2;
    }
    const Plan plan{.threads = static_cast<std::uint16_t>(std::atoi(argv[1])),
                    .time = std::chrono::milliseconds(std::atoi(argv[2])),
                    .locks = numbers(argv[3]),
                    .locality = numbers(argv[4])};
    Bench(plan).run();
}
