// MapCalls<Map, K, V>: what all maps can do with a key and with all of their entries. A Map derives
// from it and has, for it alone:
//
//   rdma::Loop& loop() const;
//   Task<Result<...>> change(K key, Edit edit, Tell tell);   // As one step; gives what `tell`
//                                                            // makes of the values before
//                                                            // and after.
//   Task<Result<>> show(See see);                            // Calls it for the entries.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

#include "feroce/gas/call.hpp"

namespace feroce::gas::detail {

template <class Map, class K, class V>
class MapCalls {
public:
    using Value = std::optional<V>;  // Of a key; nothing if it is not in the map.

    // Sets the value; true if the key is new.
    Call<bool> put(K key, V value) {
        const auto set = [value](Value& now) { now = value; };
        return {map().loop(), map().change(key, set, was_absent)};
    }
    // Sets the value of a new key; false if there is one already, which stays as it is.
    Call<bool> insert(K key, V value) {
        const auto set = [value](Value& now) { now = now.value_or(value); };
        return {map().loop(), map().change(key, set, was_absent)};
    }
    // True if it was there.
    Call<bool> erase(K key) {
        const auto remove = [](Value& now) { now.reset(); };
        return {map().loop(), map().change(key, remove, was_there)};
    }
    // Reads and changes as one step: `edit` gets the value of the key, or nothing, and sets it,
    // changes it or resets it, which erases the key. Gives what it left. It is called at most once,
    // while the bucket or leaf of the key is locked: it must not wait for anything. If it throws,
    // nothing is changed.
    template <std::invocable<Value&> Edit>
    Call<Value> update(K key, Edit edit) {
        return {map().loop(), map().change(key, std::move(edit), left_there)};
    }

    // Calls `see(key, value)` for the entries, without a lock, a round trip or more for each bucket
    // or leaf of another node. It shows each of these as it was at one moment, but not all at the
    // same: a key that is in the map all the while is shown once, one that comes or goes meanwhile
    // once or not at all, and nothing that was never there. `see` may use the map.
    template <std::invocable<const K&, const V&> See>
    Call<> for_each(See see) {
        return {map().loop(), map().show(std::move(see))};
    }
    // Counts what for_each() shows, at its cost: exact if nobody changes the map meanwhile.
    Call<std::uint64_t> size() { return {map().loop(), count()}; }

private:
    Map& map() { return static_cast<Map&>(*this); }

    static bool was_absent(const Value& before, const Value& /*after*/) { return !before; }
    static bool was_there(const Value& before, const Value& /*after*/) {
        return before.has_value();
    }
    static Value left_there(const Value& /*before*/, const Value& after) { return after; }

    rdma::Task<Result<std::uint64_t>> count() {
        std::uint64_t out = 0;
        const auto shown = co_await map().show([&out](const K&, const V&) { ++out; });
        if (!shown) co_return shown.error();
        co_return out;
    }
};

}  // namespace feroce::gas::detail
