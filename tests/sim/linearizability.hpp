// Is there an order of these calls, in which each takes effect between its start and its end, that
// an object of one thread would have given? Wing and Gong's search, remembering what was tried.
// Calls that never returned, because their caller died, may have taken effect or not.
//
// A Model says what a call is, what a state is, and whether a call can come next.
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

inline constexpr std::uint64_t kNeverEnded = std::numeric_limits<std::uint64_t>::max();

template <class Model>
class History {
public:
    using Call = typename Model::Call;
    using State = typename Model::State;
    static constexpr std::size_t kMost = 64;

    void add(const Call& call) { calls_.push_back(call); }
    bool linearizable() {
        if (calls_.size() > kMost) return false;
        if constexpr (requires { Model::before(calls_); })
            before_ = Model::before(calls_);
        else
            before_.assign(calls_.size(), 0);
        return search(0, State());
    }

private:
    bool search(std::uint64_t done, const State& state) {
        if (!tried_.insert({done, state}).second) return false;
        std::uint64_t first_end = kNeverEnded;
        for (std::size_t i = 0; i < calls_.size(); ++i)
            if ((done >> i & 1) == 0) first_end = std::min(first_end, calls_[i].end);
        if (first_end == kNeverEnded) return true;  // Only calls that may not count are left.
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            if ((done >> i & 1) != 0 || calls_[i].start > first_end) continue;
            if ((before_[i] & ~done) != 0) continue;
            State after = state;
            if (Model::fits(calls_[i], after) && search(done | std::uint64_t{1} << i, after))
                return true;
        }
        return false;
    }

    std::vector<Call> calls_;
    std::vector<std::uint64_t> before_;  // Of each call: those that must come before it.
    std::set<std::pair<std::uint64_t, State>> tried_;
};

struct MapCall {
    enum class Kind : std::uint8_t { Get, Put, Erase, Insert, Add };
    Kind kind = Kind::Get;
    std::uint64_t key = 0;
    std::uint64_t value = 0;           // Of a put or an insert; what an update adds.
    std::optional<std::uint64_t> got;  // By a get; what an update left.
    bool changed = false;  // A put or an insert: the key was new. An erase: it was there.
    std::uint64_t start = 0, end = 0;  // On one clock for all.
};

// One key of a map: they are independent.
struct KeyModel {
    using Call = MapCall;
    using State = std::optional<std::uint64_t>;

    static bool fits(const MapCall& call, State& value) {
        const bool there = value.has_value();
        const bool unknown = call.end == kNeverEnded;
        switch (call.kind) {
            case MapCall::Kind::Get:
                return unknown || call.got == value;
            case MapCall::Kind::Put:
                value = call.value;
                return unknown || call.changed == !there;
            case MapCall::Kind::Erase:
                value.reset();
                return unknown || call.changed == there;
            case MapCall::Kind::Insert:
                value = value.value_or(call.value);
                return unknown || call.changed == !there;
            case MapCall::Kind::Add:
                value = value.value_or(0) + call.value;
                return unknown || call.got == value;
        }
        return false;
    }
};

struct QueueCall {
    bool is_push = false;
    std::uint64_t value = 0;           // Of a push.
    std::optional<std::uint64_t> got;  // By a pop; nothing if the queue was empty.
    std::uint64_t start = 0, end = 0;
};

struct QueueModel {
    using Call = QueueCall;
    using State = std::vector<std::uint64_t>;

    // Values came out in the order in which they went in, and those that stayed went in last. Every
    // value is pushed once. Without this, pushes at the same time make the search too large.
    static std::vector<std::uint64_t> before(const std::vector<QueueCall>& calls) {
        const auto pop_of = [&](const QueueCall& push) {
            return std::find_if(calls.begin(), calls.end(), [&](const QueueCall& call) {
                return !call.is_push && call.end != kNeverEnded && call.got == push.value;
            });
        };
        const bool all_known = std::none_of(calls.begin(), calls.end(), [](const QueueCall& call) {
            return !call.is_push && call.end == kNeverEnded;
        });
        std::vector<std::uint64_t> out(calls.size(), 0);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            if (!calls[i].is_push) continue;
            const auto own = pop_of(calls[i]);
            for (std::size_t j = 0; j < calls.size(); ++j) {
                const auto other = calls[j].is_push ? pop_of(calls[j]) : calls.end();
                if (j == i || other == calls.end()) continue;
                const bool first = own == calls.end() ? all_known : other->end < own->start;
                if (first) out[i] |= std::uint64_t{1} << j;
            }
        }
        return out;
    }

    static bool fits(const QueueCall& call, State& values) {
        if (call.is_push) {
            values.push_back(call.value);
            return true;
        }
        std::optional<std::uint64_t> first;
        if (!values.empty()) {
            first = values.front();
            values.erase(values.begin());
        }
        return call.end == kNeverEnded || call.got == first;
    }
};

// The first key whose calls have no order; none if all have.
inline std::optional<std::uint64_t> not_linearizable(const std::vector<MapCall>& calls) {
    std::map<std::uint64_t, History<KeyModel>> keys;
    for (const MapCall& call : calls) keys[call.key].add(call);
    for (auto& [key, history] : keys)
        if (!history.linearizable()) return key;
    return std::nullopt;
}

inline bool linearizable(const std::vector<QueueCall>& calls) {
    History<QueueModel> history;
    for (const QueueCall& call : calls) history.add(call);
    return history.linearizable();
}

}  // namespace feroce::sim
