// Reader-writer lock, semaphore and versioned cell on simulated nodes.
#include <gtest/gtest.h>

#include <array>

#include "feroce/gas/sync/condition.hpp"
#include "feroce/gas/sync/rw_lock.hpp"
#include "feroce/gas/sync/spin_lock.hpp"
#include "feroce/gas/sync/versioned.hpp"
#include "sim/gas_cluster.hpp"

namespace feroce::sim::gas_sync {
namespace {

using gas::Lanes;
using gas::nic;
using gas::ptr;
using gas::Result;
using rdma::Task;
using namespace std::chrono_literals;

constexpr int kRounds = 8;

ClusterOptions shape(std::uint64_t seed) {
    return {.nodes = 2 + seed % 3,
            .threads = static_cast<std::uint16_t>(1 + seed / 3 % 3),
            .trust_global_atomics = seed % 5 != 4};
}

// Runs a task per thread on one object that the first node makes.
template <class Object, class Body>
void run_on(std::uint64_t seed, const Object& first, Body body) {
    GasCluster cluster(seed, shape(seed));
    ptr<Object> object;
    cluster.run([&](gas::Node& node, std::size_t thread) {
        if (thread == 0) {
            const auto shared = node.share<Object>("object", first);
            ASSERT_TRUE(shared) << shared.error().why;
            object = *shared;
        }
        while (!object) pause();
        const Result<> done = node.loop(thread).run(
            body(node.lanes(thread), object, static_cast<unsigned>(node.id()) + thread));
        ASSERT_TRUE(done) << done.error().why;
    });
}

struct Inside {
    int readers = 0, writers = 0, both = 0, together = 0;
    void look() {
        both += writers > 1 || (writers == 1 && readers > 0) ? 1 : 0;
        together += readers > 1 ? 1 : 0;
    }
};

Task<Result<>> read_or_write(Lanes& lanes, ptr<gas::RwLock::Line> line, std::size_t who,
                             Inside& inside) {
    gas::RwLock lock(lanes, line);
    for (std::size_t i = 0; i < kRounds; ++i) {
        const bool writes = (i + who) % 3 == 0;
        if (writes) {
            if (const auto locked = co_await lock.lock(); !locked) co_return locked;
        } else {
            if (const auto locked = co_await lock.lock_shared(); !locked) co_return locked;
        }
        int& own = writes ? inside.writers : inside.readers;
        ++own;
        inside.look();
        if (const auto slept = co_await lanes.loop().sleep(20us); !slept) co_return slept;
        inside.look();
        --own;
        if (writes) {
            if (const auto freed = co_await lock.unlock(); !freed) co_return freed;
        } else {
            if (const auto freed = co_await lock.unlock_shared(); !freed) co_return freed;
        }
    }
    co_return Result<>();
}

TEST(GasSync, ReadersShareAndWritersAreAlone) {
    int together = 0;
    for (const std::uint64_t seed : seeds(20)) {
        Inside inside;
        run_on(seed, gas::RwLock::Line(), [&](Lanes& lanes, auto line, std::size_t who) {
            return read_or_write(lanes, line, who, inside);
        });
        ASSERT_EQ(inside.both, 0) << "seed " << seed;
        together += inside.together;
    }
    EXPECT_GT(together, 0);
}

Task<Result<>> take_and_give(Lanes& lanes, ptr<gas::Semaphore::Line> line, int& inside, int& most) {
    gas::Semaphore semaphore(lanes, line);
    for (int i = 0; i < kRounds; ++i) {
        if (const auto got = co_await semaphore.acquire(); !got) co_return got;
        most = std::max(most, ++inside);
        if (const auto slept = co_await lanes.loop().sleep(30us); !slept) co_return slept;
        --inside;
        if (const auto given = co_await semaphore.release(); !given) co_return given;
    }
    co_return Result<>();
}

TEST(GasSync, ASemaphoreLetsItsNumberIn) {
    int most_ever = 0;
    for (const std::uint64_t seed : seeds(20)) {
        int inside = 0, most = 0;
        gas::Semaphore::Line first;
        first.permits = nic<std::int64_t>(2);
        run_on(seed, first, [&](Lanes& lanes, auto line, std::size_t) {
            return take_and_give(lanes, line, inside, most);
        });
        ASSERT_LE(most, 2) << "seed " << seed;
        most_ever = std::max(most_ever, most);
    }
    EXPECT_EQ(most_ever, 2);
}

using Block = std::array<std::uint64_t, 16>;

bool is_whole(const Block& block) {
    return std::all_of(block.begin(), block.end(), [&](auto word) { return word == block[0]; });
}

Task<Result<>> read_and_update(Lanes& lanes, ptr<gas::Versioned<Block>::Cell> cell, std::size_t who,
                               int& torn) {
    gas::Versioned<Block> block(lanes, cell);
    for (std::size_t i = 0; i < kRounds; ++i) {
        if ((i + who) % 2 == 0) {
            const auto updated = co_await block.update([](Block value) {
                for (auto& word : value) ++word;
                return value;
            });
            if (!updated) co_return updated.error();
            torn += is_whole(*updated) ? 0 : 1;
        } else {
            const auto value = co_await block.read();
            if (!value) co_return value.error();
            torn += is_whole(*value) ? 0 : 1;
        }
    }
    co_return Result<>();
}

TEST(GasSync, VersionedValuesAreWhole) {
    for (const std::uint64_t seed : seeds(20)) {
        int torn = 0;
        run_on(seed, gas::Versioned<Block>::Cell(), [&](Lanes& lanes, auto cell, std::size_t who) {
            return read_and_update(lanes, cell, who, torn);
        });
        ASSERT_EQ(torn, 0) << "seed " << seed;
    }
}

// One side puts numbers into a cell and waits until it is empty, the other takes them out.
struct Cell {
    std::uint64_t full = 0;
    std::uint64_t number = 0;
};

struct Exchange {
    gas::SpinLock::Line lock;
    gas::Condition::Line changed;
    gas::Event::Line gate;
    Cell cell;
};

Task<Result<>> exchange(Lanes& lanes, ptr<Exchange> place, bool puts, std::uint64_t rounds,
                        std::uint64_t& sum) {
    gas::SpinLock lock(lanes, place.field<&Exchange::lock>());
    gas::Condition changed(lock, place.field<&Exchange::changed>());
    gas::Event gate(lanes, place.field<&Exchange::gate>());
    if (const auto open = co_await gate.wait(); !open) co_return open;
    for (std::uint64_t i = 1; i <= rounds; ++i) {
        if (const auto locked = co_await lock.lock(); !locked) co_return locked;
        for (;;) {
            const auto cell = co_await lanes.read(place.field<&Exchange::cell>());
            if (!cell) co_return cell.error();
            if ((cell->full != 0) != puts) {
                sum += puts ? 0 : cell->number;
                break;
            }
            if (const auto woken = co_await changed.wait(); !woken) co_return woken;
        }
        const Cell next{puts ? std::uint64_t{1} : 0, i};
        const auto written = co_await lanes.write(place.field<&Exchange::cell>(), next);
        if (!written) co_return written;
        // Who waits may be on either side.
        if (const auto told = co_await changed.notify_all(); !told) co_return told;
        if (const auto freed = co_await lock.unlock(); !freed) co_return freed;
    }
    co_return Result<>();
}

TEST(GasSync, ConditionsLoseNobodyAndEventsLetPass) {
    for (const std::uint64_t seed : seeds(10)) {
        std::uint64_t sum = 0;
        GasCluster cluster(seed, {.nodes = 4, .trust_global_atomics = seed % 5 != 4});
        cluster.run([&](gas::Node& node, std::size_t) {
            const auto place = node.share<Exchange>("place");
            ASSERT_TRUE(place);
            const auto id = static_cast<unsigned>(node.id());
            gas::Event gate(node.lanes(), place->field<&Exchange::gate>());
            if (id == 3) {
                sleep_for(Duration(cluster.random().below(200'000)));
                EXPECT_EQ(sum, 0u);
                ASSERT_TRUE(node.loop().run(gate.set()));
            }
            const auto done =
                node.loop().run(exchange(node.lanes(), *place, id % 2 == 0, kRounds, sum));
            ASSERT_TRUE(done) << done.error().why;
            ASSERT_TRUE(node.barrier());
            if (id == 3) {
                ASSERT_TRUE(node.loop().run(gate.reset()));
            }
        });
        ASSERT_EQ(sum, 2u * kRounds * (kRounds + 1) / 2) << "seed " << seed;
    }
}

TEST(GasSync, NotifyOneWakesWhoCameFirst) {
    GasCluster cluster(1, {.nodes = 3});
    std::vector<unsigned> order;
    cluster.run([&](gas::Node& node, std::size_t) {
        const auto place = node.share<Exchange>("place");
        ASSERT_TRUE(place);
        const auto id = static_cast<unsigned>(node.id());
        gas::SpinLock lock(node.lanes(), place->field<&Exchange::lock>());
        gas::Condition changed(lock, place->field<&Exchange::changed>());
        sleep_for(id * 10ms);
        ASSERT_TRUE(node.loop().run(lock.lock()));
        if (id < 2) {
            ASSERT_TRUE(node.loop().run(changed.wait()));
            order.push_back(id);
        } else {
            ASSERT_TRUE(node.loop().run(changed.notify_one()));
        }
        ASSERT_TRUE(node.loop().run(lock.unlock()));
        if (id == 2) {
            sleep_for(10ms);
            EXPECT_EQ(order, std::vector<unsigned>{0});
            ASSERT_TRUE(node.loop().run(lock.lock()));
            ASSERT_TRUE(node.loop().run(changed.notify_one()));
            ASSERT_TRUE(node.loop().run(lock.unlock()));
        }
    });
    EXPECT_EQ(order, (std::vector<unsigned>{0, 1}));
}

// The same without looking at the version: the test above can fail.
Task<Result<>> read_blindly(Lanes& lanes, ptr<gas::Versioned<Block>::Cell> cell, std::size_t who,
                            int& torn) {
    if (who % 2 == 0) co_return co_await read_and_update(lanes, cell, who, torn);
    for (int i = 0; i < 4 * kRounds; ++i) {
        const auto all = co_await lanes.read(cell);
        if (!all) co_return all.error();
        torn += is_whole(all->content) ? 0 : 1;
    }
    co_return Result<>();
}

TEST(GasSync, TornValuesAreSeenWithoutVersions) {
    int torn = 0;
    for (std::uint64_t seed = 0; seed < 30 && torn == 0; ++seed)
        run_on(seed, gas::Versioned<Block>::Cell(), [&](Lanes& lanes, auto cell, std::size_t who) {
            return read_blindly(lanes, cell, who, torn);
        });
    EXPECT_GT(torn, 0);
}

}  // namespace
}  // namespace feroce::sim::gas_sync
