// Threads that use a container at random and write down what they asked and got, for the check of
// linearizability: simulated ones and real ones alike.
#pragma once

#include <compare>
#include <functional>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/list_set.hpp"
#include "feroce/gas/ds/ordered_map.hpp"
#include "feroce/gas/ds/queue.hpp"
#include "sim/linearizability.hpp"

namespace feroce::test {

using gas::Result;
using rdma::Task;
using sim::MapCall;
using sim::QueueCall;

using Map = gas::HashMap<std::uint64_t, std::uint64_t>;
using Fifo = gas::Queue<std::uint64_t>;

// A set as a map whose values are all 0.
class SetAsMap {
public:
    using Set = gas::ListSet<std::uint64_t>;
    using Root = Set::Item;
    explicit SetAsMap(Set set) : set_(set) {}

    Task<Result<std::optional<std::uint64_t>>> get(std::uint64_t key) {
        const auto there = co_await set_.contains(key);
        if (!there) co_return there.error();
        co_return *there ? std::optional<std::uint64_t>(0) : std::nullopt;
    }
    auto put(std::uint64_t key, std::uint64_t /*value*/) { return set_.insert(key); }
    auto erase(std::uint64_t key) { return set_.erase(key); }

private:
    Set set_;
};

struct WideKey {
    std::uint64_t number = 0;
    std::uint64_t unused[15] = {};
    friend auto operator<=>(const WideKey& a, const WideKey& b) { return a.number <=> b.number; }
    friend bool operator==(const WideKey& a, const WideKey& b) { return a.number == b.number; }
};

// A tree whose nodes hold five entries, so that few keys make it split.
class Tree {
public:
    using Wide = gas::OrderedMap<WideKey, std::uint64_t>;
    using Root = Wide::Root;
    explicit Tree(Wide tree) : tree_(std::move(tree)) {}

    auto get(std::uint64_t key) { return tree_.get(WideKey{key, {}}); }
    auto put(std::uint64_t key, std::uint64_t value) { return tree_.put(WideKey{key, {}}, value); }
    auto erase(std::uint64_t key) { return tree_.erase(WideKey{key, {}}); }
    auto insert(std::uint64_t key, std::uint64_t value) {
        return tree_.insert(WideKey{key, {}}, value);
    }
    template <class Edit>
    auto update(std::uint64_t key, Edit edit) {
        return tree_.update(WideKey{key, {}}, edit);
    }
    auto size() { return tree_.size(); }
    template <class See>
    auto for_each(See see) {
        return tree_.for_each(
            [see](const WideKey& key, std::uint64_t value) mutable { see(key.number, value); });
    }
    Wide& wide() { return tree_; }

private:
    Wide tree_;
};

// How each is made and opened. Few buckets, so that they are continued.
inline Result<gas::ptr<Map::Root>> create(gas::Node& node, Map* /*of*/) {
    return Map::create(node, 1);
}
inline Result<gas::ptr<Tree::Root>> create(gas::Node& node, Tree* /*of*/) {
    return Tree::Wide::create(node);
}
inline Result<gas::ptr<SetAsMap::Root>> create(gas::Node& node, SetAsMap* /*of*/) {
    return SetAsMap::Set::create(node);
}
inline Result<Map> open(gas::Node& node, gas::ptr<Map::Root> root, std::size_t thread, Map*) {
    return Map::open(node, root, thread);
}
inline Result<Tree> open(gas::Node& node, gas::ptr<Tree::Root> root, std::size_t thread, Tree*) {
    auto opened = Tree::Wide::open(node, root, thread);
    if (!opened) return opened.error();
    return Tree(*std::move(opened));
}
inline Result<SetAsMap> open(gas::Node& node, gas::ptr<SetAsMap::Root> root, std::size_t thread,
                             SetAsMap*) {
    return SetAsMap(SetAsMap::Set(node, root, thread));
}

template <class Call>
struct Recorder {
    std::vector<Call> calls;
    std::function<std::uint64_t()> clock;  // One for all threads.
    std::uint64_t keys = 6;                // Few: they meet. Many: buckets are continued.
    Prng random{0};
    std::function<void(std::size_t)> on_change;  // Of a call, if somebody wants to know.

    // A call that begins and may never end.
    std::size_t begin(Call call) {
        call.start = clock();
        call.end = sim::kNeverEnded;
        calls.push_back(call);
        if (on_change) on_change(calls.size() - 1);
        return calls.size() - 1;
    }
    void end(std::size_t index) {
        calls[index].end = clock();
        if (on_change) on_change(index);
    }
};

template <class M>
concept Updatable = requires(M& map) {
    map.insert(0, 0);
};

// Inserts, or adds to the value of the key.
template <Updatable M>
Task<Result<>> insert_or_add(M& map, Recorder<MapCall>& recorder, std::size_t index) {
    const MapCall call = recorder.calls[index];
    if (call.kind == MapCall::Kind::Insert) {
        const auto inserted = co_await map.insert(call.key, call.value);
        if (!inserted) co_return inserted.error();
        recorder.calls[index].changed = *inserted;
    } else {
        const auto left = co_await map.update(
            call.key, [add = call.value](auto& value) { value = value.value_or(0) + add; });
        if (!left) co_return left.error();
        recorder.calls[index].got = *left;
    }
    co_return Result<>();
}

template <class M>
Task<Result<>> use(M& map, Recorder<MapCall>& recorder, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        MapCall call;
        call.kind = static_cast<MapCall::Kind>(recorder.random.below(Updatable<M> ? 5 : 3));
        call.key = recorder.random.below(recorder.keys);
        call.value = std::is_same_v<M, SetAsMap> ? 0 : recorder.random.below(1000);
        const std::size_t index = recorder.begin(call);
        if (call.kind == MapCall::Kind::Get) {
            const auto got = co_await map.get(call.key);
            if (!got) co_return got.error();
            recorder.calls[index].got = *got;
        } else if (call.kind == MapCall::Kind::Put) {
            const auto put = co_await map.put(call.key, call.value);
            if (!put) co_return put.error();
            recorder.calls[index].changed = *put;
        } else if (call.kind == MapCall::Kind::Erase) {
            const auto erased = co_await map.erase(call.key);
            if (!erased) co_return erased.error();
            recorder.calls[index].changed = *erased;
        } else if constexpr (Updatable<M>) {
            const auto changed = co_await insert_or_add(map, recorder, index);
            if (!changed) co_return changed;
        }
        recorder.end(index);
    }
    co_return Result<>();
}

// `who` makes the values of all threads different.
template <class Q>
Task<Result<>> use_queue(Q& queue, Recorder<QueueCall>& recorder, int rounds, std::uint64_t who) {
    for (int i = 0; i < rounds; ++i) {
        QueueCall call;
        call.is_push = recorder.random.below(2) == 0;
        call.value = who * 1000 + static_cast<std::uint64_t>(i);
        const std::size_t index = recorder.begin(call);
        if (call.is_push) {
            const auto pushed = co_await queue.push(call.value);
            if (!pushed) co_return pushed.error();
        } else {
            const auto got = co_await queue.pop();
            if (!got) co_return got.error();
            recorder.calls[index].got = *got;
        }
        recorder.end(index);
    }
    co_return Result<>();
}

}  // namespace feroce::test
