#include "cm/connection_table.hpp"

#include <utility>

#include "base/assert.hpp"

namespace feroce::cm {

namespace {

// A node of its own: a container of that type then takes it without memory.
template <class Index>
typename Index::node_type make_place(typename Index::value_type value) {
    Index one;
    one.insert(std::move(value));
    return one.extract(one.begin());
}

}  // namespace

Connection& ConnectionTable::insert(CommId local_id) {
    ASSERT(!full());
    Entry entry;
    entry.local_id = local_id;
    entry.remote_place = make_place<ByRemote>({{}, local_id.raw});
    entry.qpn_place = make_place<ByQpn>({{}, local_id.raw});
    entry.deadline_place = make_place<Deadlines>({});
    const auto [it, fresh] = by_id_.try_emplace(local_id.raw, std::move(entry));
    ASSERT(fresh);
    return it->second;
}

void ConnectionTable::unlink(Connection& c) {
    Entry& entry = entry_of(c);
    set_deadline(c, kNever);
    const auto remote = by_remote_.find({c.remote_id.raw, c.sidr, c.path.remote});
    if (remote != by_remote_.end() && remote->second == c.local_id.raw)
        entry.remote_place = by_remote_.extract(remote);
    const auto qpn = by_qpn_.find({c.remote_qpn.raw, c.path.remote});
    if (qpn != by_qpn_.end() && qpn->second == c.local_id.raw)
        entry.qpn_place = by_qpn_.extract(qpn);
}

void ConnectionTable::erase(Connection& c) {
    unlink(c);
    by_id_.erase(c.local_id.raw);
}

Connection* ConnectionTable::find(CommId local_id) {
    const auto it = by_id_.find(local_id.raw);
    return it == by_id_.end() ? nullptr : &it->second;
}

const Connection* ConnectionTable::find(CommId local_id) const {
    const auto it = by_id_.find(local_id.raw);
    return it == by_id_.end() ? nullptr : &it->second;
}

Connection* ConnectionTable::find_remote(const Gid& address, CommId remote_id, bool sidr) {
    const auto it = by_remote_.find({remote_id.raw, sidr, address});
    return it == by_remote_.end() ? nullptr : find(CommId{it->second});
}

Connection* ConnectionTable::find_live_qpn(const Gid& address, Qpn remote_qpn) {
    const auto it = by_qpn_.find({remote_qpn.raw, address});
    if (it == by_qpn_.end()) return nullptr;
    Connection* c = find(CommId{it->second});
    return c != nullptr && c->is_live() ? c : nullptr;
}

void ConnectionTable::set_remote_id(Connection& c, CommId remote_id) {
    ASSERT(c.remote_id.raw == 0);
    c.remote_id = remote_id;
    auto& place = entry_of(c).remote_place;
    place.key() = {remote_id.raw, c.sidr, c.path.remote};
    auto entered = by_remote_.insert(std::move(place));
    if (!entered.inserted) place = std::move(entered.node);
}

void ConnectionTable::set_remote_qpn(Connection& c, Qpn remote_qpn) {
    ASSERT(c.remote_qpn.raw == 0);
    c.remote_qpn = remote_qpn;
    if (remote_qpn.raw == 0) return;
    auto& place = entry_of(c).qpn_place;
    place.key() = {remote_qpn.raw, c.path.remote};
    auto entered = by_qpn_.insert(std::move(place));
    if (entered.inserted) return;
    entered.position->second = c.local_id.raw;
    place = std::move(entered.node);
}

void ConnectionTable::set_deadline(Connection& c, Instant deadline) {
    auto& place = entry_of(c).deadline_place;
    if (c.deadline != kNever) place = deadlines_.extract({c.deadline, c.local_id.raw});
    c.deadline = deadline;
    if (deadline == kNever) return;
    place.value() = {deadline, c.local_id.raw};
    deadlines_.insert(std::move(place));
}

Instant ConnectionTable::next_deadline() const {
    return deadlines_.empty() ? kNever : deadlines_.begin()->first;
}

Connection* ConnectionTable::expired(Instant now) {
    if (deadlines_.empty() || deadlines_.begin()->first > now) return nullptr;
    return find(CommId{deadlines_.begin()->second});
}

}  // namespace feroce::cm
