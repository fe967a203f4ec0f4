// Names of objects, which outlive the node that keeps them. Every node has a table; that of the
// first node that lives, the keeper, is the one that counts, and that of the next one, its
// successor, will. A node that changes a name locks both by a lease, writes the change to all
// others, then to the successor, then to the keeper, which makes it valid: what was valid is in
// every table. A node that finds the keeper lost goes on at the successor, and gets its lock when a
// change that was on its way has been copied. Entries are written whole, in one packet each. A
// thread that dies in between has made its change or not; what it left in tables that do not count
// is put right by the next change.
#include <cerrno>
#include <cstring>
#include <string>

#include "feroce/gas/sync/mutex.hpp"
#include "gas/node_core.hpp"

namespace feroce::gas {

using detail::Control;
using detail::Named;
using detail::Names;

namespace {

std::optional<std::size_t> index_of(const Names& names, std::string_view name) {
    for (std::size_t i = 0; i < detail::kNames; ++i)
        if (names.entries[i].pointer != 0 && names.entries[i].text() == name) return i;
    return std::nullopt;
}

bool same(const Named& a, const Named& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

std::optional<std::size_t> free_entry(const Names& names) {
    for (std::size_t i = 0; i < detail::kNames; ++i)
        if (names.entries[i].pointer == 0) return i;
    return std::nullopt;
}

}  // namespace

ptr<Guarded<Names>::Block> Node::Core::names_of(NodeId node) {
    return control_of(node).field<&Control::names>();
}

ptr<Named> Node::Core::name_at(NodeId node, std::size_t index) {
    return NameTable::content_of(names_of(node)).elements<&Names::entries>()[index];
}

rdma::Task<Result<NodeId>> Node::Core::keeper() {
    // The others are told of a loss before anything is done without the lost node: so nobody goes
    // on with a keeper that others have given up.
    co_await tell_of_all_losses();
    take_over_losses();
    if (const auto member = check_membership(); !member) co_return member.error();
    for (std::size_t i = 0; i < size(); ++i)
        if (lives(node_at(i))) co_return node_at(i);
    co_return Error(ESHUTDOWN, "this node has left the cluster");
}

rdma::Task<Result<>> Node::Core::change_names(EditNames edit) {
    const Instant deadline = loop().after(options.patience);
    Backoff backoff(loop(), std::chrono::milliseconds(20));
    for (bool again = false;; again = true) {
        const auto node = co_await keeper();
        if (!node) co_return node.error();
        const std::size_t losses_before = count_losses();
        const auto done = co_await change_names_at(*node, edit, again);
        co_await tell_of_all_losses();
        // All others have it, the successor and the keeper too: whichever node dies now, it is
        // kept. A second time it might undo what another node has done since.
        if (done) co_return done;
        // Once more where somebody was lost meanwhile, or this thread was stopped in the middle.
        if (count_losses() != losses_before || is_lost(*node)) continue;
        if (done.error().code != ESTALE) co_return done;
        if (loop().now() >= deadline)
            co_return Error(ETIMEDOUT,
                            "each attempt to change the names takes longer than a lease "
                            "of their lock: give NodeOptions::lease more time");
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
    }
}

rdma::Task<Result<>> Node::Core::change_names_at(NodeId node, const EditNames& edit, bool again) {
    NameTable table(lane_set(0));
    Names names;
    auto hold = co_await table.lock(names_of(node), names);
    if (!hold) co_return hold.error();
    const auto changed = edit(names, again);
    if (!changed) co_return co_await table.give_up(*std::move(hold), changed.error());
    const auto copied = co_await copy_names(names, *hold);
    if (!copied) co_return co_await table.give_up(*std::move(hold), copied.error());
    if (!*changed) co_return co_await table.unlock(*std::move(hold));
    const Named entry = names.entries[**changed];
    co_return co_await table.store(*std::move(hold), name_at(node, **changed), entry);
}

rdma::Task<Result<>> Node::Core::copy_names(const Names& names, const NameTable::Hold& hold) {
    const NodeId keeper = hold.block.node();
    auto successor = co_await lock_successor(keeper);
    if (!successor) co_return successor.error();
    if (!*successor) co_return check_membership();  // There is nobody else.
    // Under this lock: a node that has found the keeper lost tells the successor before it locks
    // its table. So one that was stopped with the keeper's lock does not undo what came after.
    if (const auto kept = co_await look_again(keeper, (*successor)->node); !kept) co_return kept;
    for (std::size_t i = 0; i < size(); ++i) {
        const NodeId node = node_at(i);
        if (node == keeper || node == (*successor)->node || !lives(node)) continue;
        const auto copied = co_await write_names(names, node, {&hold, &(*successor)->hold});
        if (!copied && !cannot_reach(node)) co_return copied;
    }
    // What is in memory of the own process cannot tell whether others have found it lost.
    const auto seen = co_await look_at(keeper == id() ? (*successor)->node : keeper);
    if (!seen) co_return seen.error();
    if (const auto member = check_membership(); !member) co_return member;
    NameTable table(lane_set(0));
    Copy& copy = **successor;
    for (std::size_t i = 0; i < detail::kNames; ++i) {
        if (same(copy.names.entries[i], names.entries[i])) continue;
        const auto changed =
            co_await table.change(copy.hold, name_at(copy.node, i), names.entries[i]);
        if (!changed) co_return changed;
    }
    co_return co_await table.unlock(std::move(copy.hold));
}

rdma::Task<Result<>> Node::Core::look_again(NodeId keeper, NodeId successor) {
    const auto seen = co_await look_at(successor == id() ? keeper : successor);
    if (!seen) co_return seen.error();
    take_over_losses();
    if (const auto member = check_membership(); !member) co_return member;
    if (!lives(keeper)) co_return Error(ESTALE, "another node keeps the names by now");
    co_return Result<>();
}

rdma::Task<Result<std::optional<Node::Core::Copy>>> Node::Core::lock_successor(NodeId keeper) {
    NameTable table(lane_set(0));
    for (std::size_t i = 0; i < size(); ++i) {
        const NodeId node = node_at(i);
        if (node == keeper || !lives(node)) continue;
        Names there;
        auto hold = co_await table.lock(names_of(node), there);
        if (hold) co_return std::optional<Copy>(Copy{node, *std::move(hold), there});
        if (!cannot_reach(node)) co_return hold.error();
    }
    co_return std::optional<Copy>();
}

// No lock of that table keeps a late write out, so both leases are looked at before each.
rdma::Task<Result<>> Node::Core::write_names(const Names& names, NodeId node, TwoHolds holds) {
    const NameTable table(lane_set(0));
    const auto there = co_await lane_set(0).read(NameTable::content_of(names_of(node)));
    if (!there) co_return there.error();
    for (std::size_t i = 0; i < detail::kNames; ++i) {
        if (same(there->entries[i], names.entries[i])) continue;
        for (const NameTable::Hold* hold : holds)
            if (const auto in_time = table.check(*hold); !in_time) co_return in_time;
        const auto written = co_await lane_set(0).write(name_at(node, i), names.entries[i]);
        if (!written) co_return written;
    }
    co_return Result<>();
}

rdma::Task<Result<>> Node::Core::publish(std::string_view name, std::uint64_t bits,
                                         std::size_t bytes) {
    if (name.empty() || name.size() >= detail::kNameBytes)
        co_return Error(EINVAL, "a name has 1 to 39 characters");
    if (bits == 0) co_return Error(EINVAL, "a null pointer cannot be published");
    Named entry{.pointer = bits, .object_bytes = bytes};
    std::memcpy(entry.name, name.data(), name.size());
    using Changed = Result<std::optional<std::size_t>>;
    const EditNames add = [entry](Names& names, bool again) -> Changed {
        if (const auto there = index_of(names, entry.text())) {
            if (again && names.entries[*there].pointer == entry.pointer)
                return std::optional<std::size_t>();  // It was copied before the keeper died.
            return Error(EEXIST,
                         "there is an object named " + std::string(entry.text()) + " already");
        }
        const auto free = free_entry(names);
        if (!free) return Error(ENOSPC, "all names are taken: withdraw one");
        names.entries[*free] = entry;
        return free;
    };
    co_return co_await change_names(add);
}

rdma::Task<Result<>> Node::Core::withdraw(std::string_view name) {
    using Changed = Result<std::optional<std::size_t>>;
    const EditNames remove = [name](Names& names, bool again) -> Changed {
        const auto there = index_of(names, name);
        if (there) names.entries[*there] = Named();
        if (there || again) return there;
        return Error(ENOENT, "there is no object named " + std::string(name));
    };
    co_return co_await change_names(remove);
}

rdma::Task<Result<std::uint64_t>> Node::Core::find(std::string_view name, std::size_t bytes,
                                                   bool may_make) {
    const Instant deadline = loop().after(options.patience);
    Backoff backoff(loop(), std::chrono::milliseconds(1));
    NameTable table(lane_set(0));
    Names known;
    for (;;) {
        const auto node = co_await keeper();
        if (!node) co_return node.error();
        const auto read = co_await table.read(names_of(*node), known);
        if (!read && cannot_reach(*node)) continue;  // The next one has them.
        if (!read) co_return read.error();
        if (const auto there = index_of(known, name)) {
            const Named& entry = known.entries[*there];
            if (entry.object_bytes == bytes) co_return entry.pointer;
            co_return Error(EINVAL, std::string(name) + " is an object of " +
                                        std::to_string(entry.object_bytes) + " bytes, not " +
                                        std::to_string(bytes) + ": its type is another one");
        }
        if (may_make && *node == id()) co_return std::uint64_t{0};
        if (loop().now() >= deadline)
            co_return Error(ETIMEDOUT, "no node has published " + std::string(name));
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

}  // namespace feroce::gas
