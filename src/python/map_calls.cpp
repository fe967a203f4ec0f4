// Hash maps of the address space for C: short bytes to short bytes, or numbers to numbers.
#include <cerrno>
#include <cstring>
#include <utility>

#include "feroce/gas/ds/hash_map.hpp"
#include "feroce/gas/ds/short_bytes.hpp"
#include "feroce/gas/share.hpp"
#include "python/arguments.hpp"
#include "python/space.hpp"
#include "python/surface.hpp"

namespace feroce::python {

namespace {

using rdma::Task;

struct Change {
    std::uint32_t how;
    Bytes key, value, expected;
};

// A map whatever its types are. In the thread; ends anywhere.
class AnyMap {
public:
    AnyMap() = default;
    virtual ~AnyMap() = default;
    AnyMap(const AnyMap&) = delete;
    AnyMap& operator=(const AnyMap&) = delete;

    virtual Task<void> get(std::shared_ptr<Call> call, Bytes key) = 0;
    virtual Task<void> set(std::shared_ptr<Call> call, Change change) = 0;
    virtual Task<void> erase(std::shared_ptr<Call> call, Bytes key) = 0;
    virtual Task<void> items(std::shared_ptr<Call> call) = 0;
};

rdma::Result<std::uint64_t> parse(const Bytes& bytes, std::uint64_t /*like*/) {
    std::uint64_t out = 0;
    if (bytes.size() != sizeof out)
        return rdma::Error(EINVAL, "keys and values of this map are numbers of 64 bits");
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
}

template <std::size_t kCapacity>
rdma::Result<gas::ShortBytes<kCapacity>> parse(const Bytes& bytes, gas::ShortBytes<kCapacity>) {
    if (bytes.size() > kCapacity)
        return rdma::Error(EMSGSIZE, "at most " + std::to_string(kCapacity) +
                                         " bytes fit here, not " + std::to_string(bytes.size()) +
                                         ": keep a pointer in the map");
    return gas::ShortBytes<kCapacity>(bytes);
}

Bytes print(std::uint64_t value) {
    return bytes_of(value);
}

template <std::size_t kCapacity>
Bytes print(const gas::ShortBytes<kCapacity>& value) {
    const auto bytes = value.bytes();
    return Bytes(bytes.begin(), bytes.end());
}

template <class K, class V>
class MapOf final : public AnyMap {
public:
    using Map = gas::HashMap<K, V>;
    explicit MapOf(Map map) : map_(std::move(map)) {}

    Task<void> get(std::shared_ptr<Call> call, Bytes key) override {
        const auto parsed = parse(key, K{});
        if (!parsed) co_return fail(*call, parsed.error());
        const auto found = co_await map_.get(*parsed);
        Outcome outcome(found);
        if (found && *found) {
            outcome.value = 1;
            outcome.data = print(**found);
        }
        call->finish(std::move(outcome));
    }

    Task<void> set(std::shared_ptr<Call> call, Change change) override {
        const auto key = parse(change.key, K{});
        if (!key) co_return fail(*call, key.error());
        const auto value = parse(change.value, V{});
        if (!value) co_return fail(*call, value.error());
        if (change.how == FEROCE_REPLACE) {
            const auto expected = parse(change.expected, V{});
            if (!expected) co_return fail(*call, expected.error());
            co_return co_await replace(std::move(call), *key, *expected, *value);
        }
        if constexpr (std::is_same_v<V, std::uint64_t>)
            if (change.how == FEROCE_ADD) co_return co_await add(std::move(call), *key, *value);
        if (change.how == FEROCE_PUT) co_return told(*call, co_await map_.put(*key, *value));
        if (change.how == FEROCE_INSERT) co_return told(*call, co_await map_.insert(*key, *value));
        fail(*call, rdma::Error(EINVAL, "this map cannot be changed that way"));
    }

    Task<void> erase(std::shared_ptr<Call> call, Bytes key) override {
        const auto parsed = parse(key, K{});
        if (!parsed) co_return fail(*call, parsed.error());
        told(*call, co_await map_.erase(*parsed));
    }

    Task<void> items(std::shared_ptr<Call> call) override {
        auto all = std::make_shared<Outcome>();
        const auto see = [all](const K& key, const V& value) {
            ++all->value;
            const Bytes left = print(key), right = print(value);
            for (const Bytes& part : {bytes_of(std::uint64_t{left.size()}),
                                      bytes_of(std::uint64_t{right.size()}), left, right})
                all->data.insert(all->data.end(), part.begin(), part.end());
        };
        const auto seen = co_await map_.for_each(see);
        call->finish(seen ? std::move(*all) : Outcome(seen));
    }

private:
    static void told(Call& call, const rdma::Result<bool>& result) {
        Outcome outcome(result);
        if (result) outcome.value = *result ? 1 : 0;
        call.finish(std::move(outcome));
    }
    // As one step.
    Task<void> replace(std::shared_ptr<Call> call, K key, V expected, V desired) {
        auto replaced = std::make_shared<bool>(false);
        const auto edit = [replaced, expected, desired](typename Map::Value& value) {
            *replaced = value && *value == expected;
            if (*replaced) value = desired;
        };
        Outcome outcome(co_await map_.update(key, edit));
        outcome.value = outcome.code == 0 && *replaced ? 1 : 0;
        call->finish(std::move(outcome));
    }
    Task<void> add(std::shared_ptr<Call> call, K key, std::uint64_t amount) {
        const auto edit = [amount](typename Map::Value& value) {
            value = value.value_or(0) + amount;
        };
        const auto left = co_await map_.update(key, edit);
        Outcome outcome(left);
        if (left && *left) outcome.data = print(**left);
        call->finish(std::move(outcome));
    }

    Map map_;
};

class OpenMap final : public Object {
public:
    OpenMap(std::weak_ptr<Space> space, std::shared_ptr<AnyMap> map)
        : space_(std::move(space)), map_(std::move(map)) {}
    std::shared_ptr<Space> space() const { return space_.lock(); }
    const std::shared_ptr<AnyMap>& map() const { return map_; }

private:
    std::weak_ptr<Space> space_;
    std::shared_ptr<AnyMap> map_;
};

template <class K, class V>
rdma::Result<std::shared_ptr<AnyMap>> make_map(gas::Node& node, const std::string& name,
                                               std::uint64_t buckets) {
    auto map = gas::share<gas::HashMap<K, V>>(node, name, buckets);
    if (!map) return map.error();
    return std::shared_ptr<AnyMap>(std::make_shared<MapOf<K, V>>(*std::move(map)));
}

rdma::Result<std::shared_ptr<AnyMap>> make_map_of(std::uint32_t kind, gas::Node& node,
                                                  const std::string& name, std::uint64_t buckets) {
    if (buckets == 0) return rdma::Error(EINVAL, "a map has at least one bucket on each node");
    if (kind == FEROCE_INTEGER_MAP)
        return make_map<std::uint64_t, std::uint64_t>(node, name, buckets);
    return make_map<gas::ShortKey, gas::ShortValue>(node, name, buckets);
}

// The map lives as long as what is done with it.
Task<void> keep(std::shared_ptr<AnyMap> /*map*/, Task<void> work) {
    co_await std::move(work);
}

template <class Make>
std::uint64_t call_of_map(std::uint64_t queue, std::int64_t timeout, std::uint64_t handle,
                          Make make) {
    const auto open = Handles::instance().find<OpenMap>(handle);
    const auto space = open ? open->space() : nullptr;
    if (!space) return unknown_handle(queue);
    return begin_call(space->thread(), queue, timeout,
                      [map = open->map(), make, &of = space->state()](std::shared_ptr<Call> call) {
                          if (of.left) return Space::refuse(std::move(call));
                          return keep(map, make(std::move(call), *map));
                      });
}

}  // namespace

}  // namespace feroce::python

using namespace feroce::python;

feroce_handle feroce_map_open(feroce_handle queue, int64_t timeout, feroce_handle space,
                              const char* name, uint32_t kind, uint64_t buckets) {
    return begun(queue, [&]() -> feroce_handle {
        const std::weak_ptr<Space> owner = Handles::instance().find<Space>(space);
        return call_alone(queue, timeout, space,
                          [owner, kind, buckets, called = text_of(name)](Space::State& state) {
                              const auto made = make_map_of(kind, state.node, called, buckets);
                              Outcome outcome(made);
                              if (made) outcome.made = std::make_shared<OpenMap>(owner, *made);
                              return outcome;
                          });
    });
}

feroce_handle feroce_map_get(feroce_handle queue, int64_t timeout, feroce_handle map,
                             feroce_bytes key) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of_map(queue, timeout, map,
                           [name = copy_of(key)](std::shared_ptr<Call> call, AnyMap& of) {
                               return of.get(std::move(call), name);
                           });
    });
}

feroce_handle feroce_map_set(feroce_handle queue, int64_t timeout, feroce_handle map, uint32_t how,
                             feroce_bytes key, feroce_bytes value, feroce_bytes expected) {
    return begun(queue, [&]() -> feroce_handle {
        const Change change{how, copy_of(key), copy_of(value), copy_of(expected)};
        return call_of_map(queue, timeout, map, [change](std::shared_ptr<Call> call, AnyMap& of) {
            return of.set(std::move(call), change);
        });
    });
}

feroce_handle feroce_map_erase(feroce_handle queue, int64_t timeout, feroce_handle map,
                               feroce_bytes key) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of_map(queue, timeout, map,
                           [name = copy_of(key)](std::shared_ptr<Call> call, AnyMap& of) {
                               return of.erase(std::move(call), name);
                           });
    });
}

feroce_handle feroce_map_items(feroce_handle queue, int64_t timeout, feroce_handle map) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of_map(queue, timeout, map, [](std::shared_ptr<Call> call, AnyMap& of) {
            return of.items(std::move(call));
        });
    });
}
