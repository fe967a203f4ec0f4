// ListenerTable: who takes requests for which service on which address. An exact address goes
// before the wildcard of its family, and that before the wildcard of both.
#pragma once

#include <map>
#include <vector>

#include "base/result.hpp"
#include "cm/types.hpp"

namespace feroce::cm {

struct Listener {
    ListenerId id{};
    ListenOptions options{};
    std::size_t pending = 0;  // Requests that the caller has not answered.
};

class ListenerTable {
public:
    explicit ListenerTable(std::size_t capacity) : capacity_(capacity) {}

    Result<ListenerId> add(const ListenOptions& options);
    void remove(ListenerId id);
    Listener* find(ListenerId id);
    Listener* match(ServiceId service, const Gid& destination);
    std::vector<ListenerId> remove_address(const Gid& address);  // Those that were there.

private:
    using Key = std::pair<std::uint64_t, Gid>;

    Listener* at(ServiceId service, const Gid& address);

    std::size_t capacity_;
    std::uint32_t next_id_ = 1;
    std::map<Key, Listener> by_address_;
    std::map<std::uint32_t, Key> by_id_;
};

}  // namespace feroce::cm
