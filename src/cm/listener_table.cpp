#include "cm/listener_table.hpp"

#include <cerrno>

#include "base/rollback.hpp"

namespace feroce::cm {

Result<ListenerId> ListenerTable::add(const ListenOptions& options) {
    if (by_id_.size() >= capacity_) return Error{ENOMEM, "too many listeners"};
    if (options.address.is_multicast())
        return Error{EINVAL, "a multicast address cannot be connected to"};
    const Key key{options.service.raw, options.address};
    if (at(options.service, options.address) != nullptr)
        return Error{EADDRINUSE, "something listens for this service on this address already"};
    while (next_id_ == 0 || by_id_.contains(next_id_)) ++next_id_;
    const ListenerId id{next_id_++};
    by_id_[id.raw] = key;
    Rollback forget([&] { by_id_.erase(id.raw); });
    by_address_[key] = {.id = id, .options = options};
    forget.keep();
    return id;
}

void ListenerTable::remove(ListenerId id) {
    const auto it = by_id_.find(id.raw);
    if (it == by_id_.end()) return;
    by_address_.erase(it->second);
    by_id_.erase(it);
}

Listener* ListenerTable::find(ListenerId id) {
    const auto it = by_id_.find(id.raw);
    return it == by_id_.end() ? nullptr : &by_address_.at(it->second);
}

Listener* ListenerTable::at(ServiceId service, const Gid& address) {
    const auto it = by_address_.find({service.raw, address});
    return it == by_address_.end() ? nullptr : &it->second;
}

Listener* ListenerTable::match(ServiceId service, const Gid& destination) {
    if (Listener* exact = at(service, destination)) return exact;
    Listener* any = at(service, Gid{});
    if (!destination.is_v4()) return any;
    if (Listener* any_v4 = at(service, Gid::from_v4(0))) return any_v4;
    return any != nullptr && !any->options.v6_only ? any : nullptr;
}

std::vector<ListenerId> ListenerTable::remove_address(const Gid& address) {
    std::vector<ListenerId> gone;
    for (const auto& [id, key] : by_id_)
        if (key.second == address) gone.push_back({id});
    for (const ListenerId id : gone) remove(id);
    return gone;
}

}  // namespace feroce::cm
