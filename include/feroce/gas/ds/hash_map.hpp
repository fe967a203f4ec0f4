// HashMap<K, V>: a map whose buckets are spread over the memory of all nodes. A get is one round
// trip, a change two. Buckets that are full are continued elsewhere, at one round trip more each.
//
//   map.put(key, 1).wait();                                          // Blocking, or
//   co_await map.update(key, [](auto& value) { value = value.value_or(0) + 1; });
//
// Every operation on a key is linearizable. Keys are compared by their bytes, so K must have no
// padding. A thread that dies in the middle of a change delays others on that bucket by a lease
// (Guarded). A change that fails with ETIMEDOUT or ECANCELED was not made; one whose coroutine is
// destroyed is made or not, and leaves no lock. Any number of tasks of the thread may use one
// handle at the same time.
#pragma once

#include <concepts>
#include <optional>
#include <utility>
#include <vector>

#include "feroce/gas/call.hpp"
#include "feroce/gas/ds/buckets.hpp"
#include "feroce/gas/node.hpp"

namespace feroce::gas {

template <Shareable K, Shareable V>
requires std::has_unique_object_representations_v<K>
class HashMap {
    using Buckets = detail::Buckets<K, V>;

public:
    using Entry = typename Buckets::Entry;
    using Bucket = typename Buckets::Bucket;
    using Root = typename Buckets::Root;
    using Value = std::optional<V>;  // Of a key; nothing if it is not in the map.

    // Makes a map with tables on all nodes that have memory, before others open it.
    static Result<ptr<Root>> create(Node& node, std::size_t buckets_per_node) {
        const auto tables = detail::Parts<Bucket>::create(node, buckets_per_node);
        if (!tables) return tables.error();
        return detail::Parts<Bucket>::under(node, buckets_per_node, *tables,
                                            Root{buckets_per_node, *tables});
    }
    // For one thread.
    static Result<HashMap> open(Node& node, ptr<Root> where, std::size_t thread = 0) {
        const auto root = node.lanes(thread).read(where).wait();
        if (!root) return root.error();
        return HashMap(Buckets(node.lanes(thread), node.allocator(thread), *root));
    }

    Call<Value> get(K key) { return {loop(), buckets_.get(key)}; }
    // Sets the value; true if the key is new.
    Call<bool> put(K key, V value) {
        const auto set = [value](Value& now) { now = value; };
        return {loop(), buckets_.change(key, set, was_absent)};
    }
    // Sets the value of a new key; false if there is one already, which stays as it is.
    Call<bool> insert(K key, V value) {
        const auto set = [value](Value& now) { now = now.value_or(value); };
        return {loop(), buckets_.change(key, set, was_absent)};
    }
    // True if it was there.
    Call<bool> erase(K key) {
        const auto remove = [](Value& now) { now.reset(); };
        return {loop(), buckets_.change(key, remove, was_there)};
    }
    // Reads and changes as one step: `edit` gets the value of the key, or nothing, and sets it,
    // changes it or resets it, which erases the key. Gives what it left. It is called at most once,
    // while the bucket is locked: it must not wait for anything. If it throws, nothing is changed.
    template <std::invocable<Value&> Edit>
    Call<Value> update(K key, Edit edit) {
        return {loop(), buckets_.change(key, std::move(edit), left_there)};
    }

    // Calls `see(key, value)` for the entries, without a lock, a round trip or more for each bucket
    // of another node. It shows each bucket as it was at one moment, but not all at the same: a key
    // that is in the map all the while is shown once, one that comes or goes meanwhile once or not
    // at all, and nothing that was never there. `see` may use the map.
    template <std::invocable<const K&, const V&> See>
    Call<> for_each(See see) {
        return {loop(), show(std::move(see))};
    }
    // Counts what for_each() shows, at its cost: exact if nobody changes the map meanwhile.
    Call<std::uint64_t> size() { return {loop(), count()}; }

private:
    explicit HashMap(Buckets buckets) : buckets_(std::move(buckets)) {}

    static bool was_absent(const Value& before, const Value& /*after*/) { return !before; }
    static bool was_there(const Value& before, const Value& /*after*/) {
        return before.has_value();
    }
    static Value left_there(const Value& /*before*/, const Value& after) { return after; }

    template <class See>
    rdma::Task<Result<>> show(See see) {
        std::vector<Entry> entries;
        for (std::uint64_t i = 0; i < buckets_.count(); ++i) {
            const auto read = co_await buckets_.read(buckets_.at(i), entries);
            if (!read) co_return read;
            for (const Entry& entry : entries) see(entry.key, entry.value);
        }
        co_return Result<>();
    }
    rdma::Task<Result<std::uint64_t>> count() {
        std::uint64_t out = 0;
        const auto shown = co_await show([&out](const K&, const V&) { ++out; });
        if (!shown) co_return shown.error();
        co_return out;
    }
    rdma::Loop& loop() const { return buckets_.loop(); }

    Buckets buckets_;
};

}  // namespace feroce::gas
