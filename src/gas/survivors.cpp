// Which nodes of a cluster live, and barriers among those. Nobody decides for the others: a node
// whose lane to another fails notes that it is lost and writes so to all that it reaches, and
// a node that waits for another reads what that has noted. A loss is final (ADR 0021), so all of
// them come to know the same losses. Each of them fences the lost one: its device refuses whatever
// that one asks for. A node that is refused, or reads its own number among the losses of another,
// knows that it is no longer one of them, and asks nobody for anything any more.
//
// While nobody is lost a barrier has log2(n) rounds. From the first loss on what one node heard
// from another may be missing, so each tells every other one that lives.
#include <bit>
#include <cerrno>
#include <string>

#include "feroce/gas/sync/mutex.hpp"
#include "gas/node_core.hpp"
#include "gas/outcast.hpp"

namespace feroce::gas {

using detail::Control;
using detail::DirectoryEntry;

namespace {

// While a node waits at a barrier it makes sure that the node it waits for still lives.
constexpr Duration kHeartbeat = std::chrono::milliseconds(100);

}  // namespace

ptr<plain<std::uint64_t>> Node::Core::losses_of(NodeId node) {
    return {node, control_of(node).address() + layout().losses()};
}

ptr<plain<std::uint64_t>> Node::Core::arrivals_of(NodeId node) {
    return {node, control_of(node).address() + layout().arrivals()};
}

Result<> Node::Core::check_membership() const {
    if (!is_lost(id())) return {};
    return outcast();
}

void Node::Core::note_loss(NodeId lost) {
    losses()[static_cast<std::size_t>(lost)].store(1);
    control().warned.store(1);
    if (lost == id()) return;
    auto& why = lane_set(0).lane(lost).lost;
    if (!why) why = found_by_another();
    fenced_.resize(size());
    if (!fenced_[static_cast<std::size_t>(lost)]) fence(lost);
    fenced_[static_cast<std::size_t>(lost)] = true;
}

// From here on this node's device refuses all that the lost one asks for, and so tells it. The
// connections stay for that: a device says nothing of one that is gone.
void Node::Core::fence(NodeId lost) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.qp_access_flags = 0;
    for (Accepted& lane : accepted) {
        if (lane.from != lost || !lane.connection.is_open()) continue;
        const int mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
        if (ibv_modify_qp(lane.connection.queue_pair(), &attributes, mask) != 0)
            lane.connection.close();
    }
}

void Node::Core::on_lost(NodeId node) {
    // What an outcast does not reach any more has fenced it.
    if (is_lost(id()) || (node != id() && has_left(node))) return;
    losses()[static_cast<std::size_t>(node)].store(1);
    control().warned.store(1);
}

void Node::Core::follow_losses() {
    if (control().warned.load() == 0 || is_lost(id())) return;
    fenced_.resize(size());
    for (std::size_t i = 0; i < size(); ++i) {
        if (fenced_[i] || !is_lost(node_at(i))) continue;
        note_loss(node_at(i));
        lane_set(0).shelter().spawn(lose(node_at(i)));
    }
}

void Node::Core::take_over_losses() {
    for (std::size_t i = 0; i < size(); ++i)
        if (is_lost(node_at(i))) note_loss(node_at(i));
}

rdma::Task<void> Node::Core::lose(NodeId lost) {
    if (has_left(lost) || is_lost(id())) co_return;
    note_loss(lost);
    // Until nobody else is found lost on the way.
    for (std::size_t known = 0; known != count_losses();) {
        known = count_losses();
        for (std::size_t i = 0; i < size(); ++i) {
            const NodeId node = node_at(i);
            if (node != id() && lives(node)) co_await tell_of_losses(node);
        }
    }
    told_.resize(size());
    told_[static_cast<std::size_t>(lost)] = true;
}

std::size_t Node::Core::count_losses() const {
    std::size_t out = 0;
    for (std::size_t i = 0; i < size(); ++i) out += is_lost(node_at(i)) ? 1 : 0;
    return out;
}

rdma::Task<void> Node::Core::tell_of_all_losses() {
    for (std::size_t i = 0; i < size(); ++i) {
        const NodeId node = node_at(i);
        if (node == id() || !cannot_reach(node) || has_left(node)) continue;
        told_.resize(size());
        if (!told_[i]) co_await lose(node);
    }
}

rdma::Task<void> Node::Core::tell_of_losses(NodeId node) {
    for (std::size_t i = 0; i < size(); ++i) {
        if (!is_lost(node_at(i))) continue;
        auto both = lane_set(0).chain(node);
        both.write(losses_of(node)[i], 1);
        both.write(control_of(node).field<&Control::warned>(), 1);
        const auto told = co_await both;
        if (told) continue;
        if (cannot_reach(node) && !has_left(node)) note_loss(node);
        co_return;
    }
}

// Takes over the losses that a node knows of, and the barrier that it has come to.
rdma::Task<Result<>> Node::Core::look_at(NodeId node) {
    heard_.resize(size());
    std::uint64_t arrived = 0;
    auto both = lane_set(0).chain(node);
    both.read(control_of(node).field<&Control::arrived>(), arrived);
    both.read(span<plain<std::uint64_t>>(losses_of(node), size()), heard_.data());
    if (const auto done = co_await both; !done) co_return done.error();
    for (std::size_t i = 0; i < size(); ++i)
        if (heard_[i].load() != 0 && !is_lost(node_at(i))) note_loss(node_at(i));
    arrived_[static_cast<std::size_t>(node)] = arrived;
    co_return Result<>();
}

rdma::Task<Result<>> Node::Core::meet() {
    control().arrived.store(++epoch_);
    if (control().warned.load() == 0) {
        const auto all = co_await pass_rounds();
        if (!all) co_return all.error();
        if (*all) co_return Result<>();
    }
    co_return co_await meet_survivors();
}

// Dissemination: in round k everybody tells the node 2^k further on. log2(n) rounds, and no word
// that all of them poll. False if somebody is lost.
rdma::Task<Result<bool>> Node::Core::pass_rounds() {
    const auto own = static_cast<std::size_t>(id());
    for (std::size_t round = 0, step = 1; step < size(); ++round, step *= 2) {
        const NodeId to = node_at((own + step) % size());
        const NodeId from = node_at((own + size() - step) % size());
        const auto flags = control_of(to).elements<&Control::barrier>();
        const auto told = co_await lane_set(0).write(flags[round], epoch_);
        if (!told && !cannot_reach(to)) co_return told.error();
        // A node that has left had heard us: only the acknowledgement was lost.
        if (!told && !has_left(to)) {
            co_await lose(to);
            co_return false;
        }
        const auto heard = co_await await_flag(round, from);
        if (!heard || !*heard) co_return heard;
    }
    co_return true;
}

rdma::Task<Result<bool>> Node::Core::await_flag(std::size_t round, NodeId from) {
    Backoff backoff(lane_set(0));
    Instant next_heartbeat = loop().after(kHeartbeat);
    while (control().barrier[round].load() < epoch_) {
        // One that has left passed this barrier, and told us before: or it found a loss, as we
        // will.
        if (control().warned.load() != 0 || has_left(from))
            co_return control().barrier[round].load() >= epoch_;
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        if (loop().now() < next_heartbeat) continue;
        const auto seen = co_await look_at(from);
        // It may have told us and left meanwhile.
        if (!seen && control().barrier[round].load() < epoch_) {
            if (!cannot_reach(from)) co_return seen.error();
            co_await lose(from);
        }
        next_heartbeat = loop().after(kHeartbeat);
    }
    co_return true;
}

// What a node has written here outlives it: one that has passed a barrier and ended does not keep
// others from passing it.
rdma::Task<Result<>> Node::Core::meet_survivors() {
    for (std::size_t i = 0; i < size(); ++i)
        if (const auto told = co_await tell_arrival(node_at(i)); !told) co_return told;
    Backoff backoff(lane_set(0));
    Instant next_heartbeat = loop().after(kHeartbeat);
    for (std::size_t i = 0; i < size();) {
        if (const auto member = check_membership(); !member) co_return member;
        if (!is_missing(node_at(i))) {
            ++i;
            continue;
        }
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
        if (loop().now() < next_heartbeat) continue;
        if (const auto looked = co_await look_for_missing(); !looked) co_return looked;
        next_heartbeat = loop().after(kHeartbeat);
    }
    take_over_losses();
    co_return check_membership();
}

rdma::Task<Result<>> Node::Core::tell_arrival(NodeId node) {
    if (node == id() || !lives(node)) co_return Result<>();
    const auto own = static_cast<std::size_t>(id());
    const auto told = co_await lane_set(0).write(arrivals_of(node)[own], epoch_);
    if (told) co_return Result<>();
    if (const auto member = check_membership(); !member) co_return member;
    if (!cannot_reach(node)) co_return told;
    co_await lose(node);
    co_return Result<>();
}

// One that passed this barrier by rounds, while others lost somebody, has written its arrival to
// nobody, but says it.
rdma::Task<Result<>> Node::Core::look_for_missing() {
    for (std::size_t i = 0; i < size(); ++i) {
        const NodeId node = node_at(i);
        if (!is_missing(node)) continue;
        const auto seen = co_await look_at(node);
        if (const auto member = check_membership(); !member) co_return member;
        // It may have written here and ended meanwhile.
        if (seen || has_come(node)) continue;
        if (!cannot_reach(node)) co_return seen;
        co_await lose(node);
    }
    co_return Result<>();
}

// Whether a node is known to have come to the barrier that this one is at. In round k a node tells
// of itself and of the 2^k - 1 before it, which it has heard of in the rounds before.
bool Node::Core::has_come(NodeId node) const {
    const auto index = static_cast<std::size_t>(node);
    if (arrivals()[index].load() >= epoch_ || arrived_[index] >= epoch_) return true;
    const std::size_t distance = (static_cast<std::size_t>(id()) + size() - index) % size();
    if (distance == 0) return true;
    return control().barrier[std::bit_width(distance) - 1].load() >= epoch_;
}

Result<> Node::Core::report_losses() {
    reported_.resize(size());
    std::string words;
    for (std::size_t i = 0; i < size(); ++i) {
        if (!is_lost(node_at(i)) || reported_[i] || has_come(node_at(i))) continue;
        reported_[i] = true;
        const auto& why = lane_set(0).lane(node_at(i)).lost;
        words += (words.empty() ? "node " : "; node ") + std::to_string(i) +
                 " is lost: " + (why ? why->why : "another node has found it lost");
    }
    if (words.empty()) return {};
    return Error(ECONNRESET, words);
}

// After the last barrier, before the lanes are closed.
rdma::Task<void> Node::Core::say_goodbye() {
    for (std::size_t i = 0; i < size(); ++i) {
        const NodeId node = node_at(i);
        if (node == id() || is_lost(node)) continue;
        const ptr<DirectoryEntry> entries(node,
                                          control_of(node).address() + detail::Layout::directory());
        const auto own = entries[static_cast<std::size_t>(id())];
        // A node that cannot hear it has left as well.
        static_cast<void>(co_await lane_set(0).write(own.field<&DirectoryEntry::left>(), 1));
    }
}

}  // namespace feroce::gas
