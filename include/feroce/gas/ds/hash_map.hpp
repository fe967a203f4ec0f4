// HashMap<K, V>: a map whose buckets are spread over the memory of all nodes. A get is one round
// trip, a change two. Buckets that are full are continued elsewhere, at one round trip more each,
// until one has kBucketEntries: then a new key of it is refused with ENOSPC. The table does not
// grow: make it with a bucket for every few keys that are expected.
//
//   map.put(key, 1).wait();                                          // Blocking, or
//   co_await map.update(key, [](auto& value) { value = value.value_or(0) + 1; });
//
// Every operation on a key is linearizable. Keys are compared by their bytes, so K must have no
// padding. What a map can do besides get() is in map_calls.hpp. A thread that dies in the middle of
// a change delays others on that bucket by a lease (Guarded). A change that fails with ETIMEDOUT or
// ECANCELED was not made; one whose coroutine is destroyed is made or not, and leaves no lock. Any
// number of tasks of the thread may use one handle at the same time.
#pragma once

#include <utility>
#include <vector>

#include "feroce/gas/call.hpp"
#include "feroce/gas/ds/buckets.hpp"
#include "feroce/gas/ds/map_calls.hpp"
#include "feroce/gas/node.hpp"

namespace feroce::gas {

template <Shareable K, Shareable V>
requires std::has_unique_object_representations_v<K>
class HashMap : public detail::MapCalls<HashMap<K, V>, K, V> {
    using Calls = detail::MapCalls<HashMap, K, V>;
    using Buckets = detail::Buckets<K, V>;

public:
    using Entry = typename Buckets::Entry;
    using Bucket = typename Buckets::Bucket;
    using Root = typename Buckets::Root;
    using Value = typename Calls::Value;
    static constexpr std::size_t kBucketEntries = Buckets::kEntries * Buckets::kLongest;

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

private:
    friend Calls;
    explicit HashMap(Buckets buckets) : buckets_(std::move(buckets)) {}

    template <class Edit, class Tell>
    auto change(K key, Edit edit, Tell tell) {
        return buckets_.change(key, std::move(edit), tell);
    }

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
    rdma::Loop& loop() const { return buckets_.loop(); }

    Buckets buckets_;
};

}  // namespace feroce::gas
