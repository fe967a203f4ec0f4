// ConnectionTable: all connections by our communication id, by the peer's, by the peer's queue pair
// and by deadline. Bounded. Pointers stay valid until erase(). Memory is taken by insert() alone,
// for all that follows.
#pragma once

#include <map>
#include <set>
#include <tuple>

#include "cm/connection.hpp"

namespace feroce::cm {

class ConnectionTable {
public:
    explicit ConnectionTable(std::size_t capacity) : capacity_(capacity) {}

    std::size_t size() const { return by_id_.size(); }
    bool full() const { return size() >= capacity_; }

    Connection& insert(CommId local_id);  // Must not be full, the id not taken. May throw.
    void erase(Connection& c);
    void unlink(Connection& c);  // Found by our id only from now on, and without a deadline.

    Connection* find(CommId local_id);
    const Connection* find(CommId local_id) const;
    // What the peer at `address` calls `remote_id`. SIDR has its own numbers.
    Connection* find_remote(const Gid& address, CommId remote_id, bool sidr);
    Connection* find_live_qpn(const Gid& address, Qpn remote_qpn);

    // Index entries; path.remote must be set. At most one connection per key: the first stays for
    // ids, the newest for queue pairs.
    void set_remote_id(Connection& c, CommId remote_id);
    void set_remote_qpn(Connection& c, Qpn remote_qpn);

    void set_deadline(Connection& c, Instant deadline);
    Instant next_deadline() const;
    Connection* expired(Instant now);  // The earliest whose deadline has passed.

    template <class Visitor>
    void for_each(Visitor visit) {  // `visit` may erase the connection it is given.
        for (auto it = by_id_.begin(); it != by_id_.end();) visit((it++)->second);
    }

private:
    // The number first: most have the same few addresses, which take longer to compare.
    using RemoteKey = std::tuple<std::uint32_t, bool, Gid>;
    using QpnKey = std::pair<std::uint32_t, Gid>;

    using ByRemote = std::map<RemoteKey, std::uint32_t>;
    using ByQpn = std::map<QpnKey, std::uint32_t>;
    using Deadlines = std::set<std::pair<Instant, std::uint32_t>>;

    // With a place in each index, until it is entered there and when it has left.
    struct Entry : Connection {
        ByRemote::node_type remote_place;
        ByQpn::node_type qpn_place;
        Deadlines::node_type deadline_place;
    };
    static Entry& entry_of(Connection& c) { return static_cast<Entry&>(c); }

    std::size_t capacity_;
    std::map<std::uint32_t, Entry> by_id_;
    ByRemote by_remote_;
    ByQpn by_qpn_;
    Deadlines deadlines_;
};

}  // namespace feroce::cm
