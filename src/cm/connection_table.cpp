#include "cm/connection_table.hpp"

#include "base/assert.hpp"

namespace feroce::cm {

Connection& ConnectionTable::insert(CommId local_id) {
    ASSERT(!full());
    const auto [it, fresh] = by_id_.try_emplace(local_id.raw);
    ASSERT(fresh);
    it->second.local_id = local_id;
    return it->second;
}

void ConnectionTable::unlink(Connection& c) {
    set_deadline(c, kNever);
    const auto remote = by_remote_.find({c.path.remote, c.sidr, c.remote_id.raw});
    if (remote != by_remote_.end() && remote->second == c.local_id.raw) by_remote_.erase(remote);
    const auto qpn = by_qpn_.find({c.path.remote, c.remote_qpn.raw});
    if (qpn != by_qpn_.end() && qpn->second == c.local_id.raw) by_qpn_.erase(qpn);
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
    const auto it = by_remote_.find({address, sidr, remote_id.raw});
    return it == by_remote_.end() ? nullptr : find(CommId{it->second});
}

Connection* ConnectionTable::find_live_qpn(const Gid& address, Qpn remote_qpn) {
    const auto it = by_qpn_.find({address, remote_qpn.raw});
    if (it == by_qpn_.end()) return nullptr;
    Connection* c = find(CommId{it->second});
    return c != nullptr && c->is_live() ? c : nullptr;
}

void ConnectionTable::set_remote_id(Connection& c, CommId remote_id) {
    ASSERT(c.remote_id.raw == 0);
    c.remote_id = remote_id;
    by_remote_.try_emplace({c.path.remote, c.sidr, remote_id.raw}, c.local_id.raw);
}

void ConnectionTable::set_remote_qpn(Connection& c, Qpn remote_qpn) {
    ASSERT(c.remote_qpn.raw == 0);
    c.remote_qpn = remote_qpn;
    if (remote_qpn.raw != 0) by_qpn_[{c.path.remote, remote_qpn.raw}] = c.local_id.raw;
}

void ConnectionTable::set_deadline(Connection& c, Instant deadline) {
    if (c.deadline != kNever) deadlines_.erase({c.deadline, c.local_id.raw});
    c.deadline = deadline;
    if (deadline != kNever) deadlines_.insert({deadline, c.local_id.raw});
}

Instant ConnectionTable::next_deadline() const {
    return deadlines_.empty() ? kNever : deadlines_.begin()->first;
}

Connection* ConnectionTable::expired(Instant now) {
    if (deadlines_.empty() || deadlines_.begin()->first > now) return nullptr;
    return find(CommId{deadlines_.begin()->second});
}

}  // namespace feroce::cm
