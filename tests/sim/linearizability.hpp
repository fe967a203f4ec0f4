// Is there an order of these calls, in which each takes effect between its start and its end, that
// a map of one thread would have given? Keys are independent, so each is searched on its own
// (Wing and Gong's search, remembering what was tried).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace feroce::sim {

struct MapCall {
    enum class Kind : std::uint8_t { Get, Put, Erase };
    Kind kind = Kind::Get;
    std::uint64_t key = 0;
    std::uint64_t value = 0;           // Of a put.
    std::optional<std::uint64_t> got;  // By a get.
    bool changed = false;              // A put: the key was new. An erase: it was there.
    std::uint64_t start = 0, end = 0;  // On one clock for all.
};

class KeyHistory {
public:
    static constexpr std::size_t kMost = 64;

    void add(const MapCall& call) { calls_.push_back(call); }
    bool linearizable() { return calls_.size() <= kMost && search(0, std::nullopt); }

private:
    using Value = std::optional<std::uint64_t>;

    // Whether the call can come next; changes the value as it does.
    static bool fits(const MapCall& call, Value& value) {
        const bool there = value.has_value();
        switch (call.kind) {
            case MapCall::Kind::Get:
                return call.got == value;
            case MapCall::Kind::Put:
                value = call.value;
                return call.changed == !there;
            case MapCall::Kind::Erase:
                value.reset();
                return call.changed == there;
        }
        return false;
    }

    bool search(std::uint64_t done, Value value) {
        if (!tried_.insert({done, value}).second) return false;
        std::uint64_t first_end = std::numeric_limits<std::uint64_t>::max();
        bool all = true;
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            if ((done >> i & 1) != 0) continue;
            all = false;
            first_end = std::min(first_end, calls_[i].end);
        }
        if (all) return true;
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            if ((done >> i & 1) != 0 || calls_[i].start > first_end) continue;
            Value after = value;
            if (fits(calls_[i], after) && search(done | std::uint64_t{1} << i, after)) return true;
        }
        return false;
    }

    std::vector<MapCall> calls_;
    std::set<std::pair<std::uint64_t, Value>> tried_;
};

// The first key whose calls have no order; none if all have.
inline std::optional<std::uint64_t> not_linearizable(const std::vector<MapCall>& calls) {
    std::map<std::uint64_t, KeyHistory> keys;
    for (const MapCall& call : calls) keys[call.key].add(call);
    for (auto& [key, history] : keys)
        if (!history.linearizable()) return key;
    return std::nullopt;
}

}  // namespace feroce::sim
