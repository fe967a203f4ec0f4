// ListSet<K>: a sorted linked list of keys, without locks (Harris and Michael). The lowest bit of
// an item's link says that the item is removed; the next operation that passes unlinks it. An
// operation costs a round trip per item that it passes on another node: for small sets, and to
// compare with.
//
// Every operation is linearizable, and a thread that dies in the middle of one leaves a whole list.
// A change that fails with ETIMEDOUT or ECANCELED was not made. Any number of tasks of the thread
// may use one handle at the same time.
#pragma once

#include <concepts>

#include "feroce/gas/call.hpp"
#include "feroce/gas/node.hpp"

namespace feroce::gas {

template <Shareable K>
requires std::totally_ordered<K>
class ListSet {
public:
    struct Item {
        nic<std::uint64_t> next;  // Bits of the next one, and kRemoved.
        K key{};
    };
    using Root = Item;  // The first, which has no key.

    static Result<ptr<Item>> create(Node& node) { return node.allocate(Item()); }
    // For one thread.
    static Result<ListSet> open(Node& node, ptr<Root> root, std::size_t thread = 0) {
        return ListSet(node, root, thread);
    }
    ListSet(Node& node, ptr<Item> first, std::size_t thread = 0)
        : lanes_(&node.lanes(thread)),
          allocator_(&node.allocator(thread)),
          epochs_(&node.epochs(thread)),
          first_(first) {}

    Call<bool> contains(K key) { return {lanes_->loop(), look_for(key)}; }
    // True if it was not there.
    Call<bool> insert(K key) { return {lanes_->loop(), add(key)}; }
    // True if it was there.
    Call<bool> erase(K key) { return {lanes_->loop(), remove(key)}; }

private:
    static constexpr std::uint64_t kRemoved = 1;

    struct Spot {
        ptr<nic<std::uint64_t>> link;  // That leads to
        std::uint64_t here = 0;        // the first item whose key is not smaller; 0: none.
        std::uint64_t next = 0;        // Its link.
        bool found = false;
    };

    rdma::Task<Result<bool>> look_for(K key) {
        const Epochs::Pin pin = epochs_->pin();
        const auto spot = co_await find(key, pin);
        if (!spot) co_return spot.error();
        co_return spot->found;
    }

    rdma::Task<Result<bool>> add(K key) {
        const Epochs::Pin pin = epochs_->pin();
        ptr<Item> made;
        const Result<bool> inserted = co_await link(key, pin, made);
        if (made)  // Nobody has seen it.
            static_cast<void>(co_await allocator_->destroy(made));
        co_return inserted;
    }

    rdma::Task<Result<bool>> remove(K key) {
        const Epochs::Pin pin = epochs_->pin();
        for (;;) {
            const auto spot = co_await find(key, pin);
            if (!spot) co_return spot.error();
            if (!spot->found) co_return false;
            const auto item = ptr<Item>::from_bits(spot->here);
            if (const auto held = pin.check(); !held) co_return held.error();
            const auto found = co_await lanes_
                                   ->compare_exchange(item.template field<&Item::next>(),
                                                      spot->next, spot->next | kRemoved)
                                   .shielded();
            if (!found) co_return found.error();
            if (*found != spot->next) continue;
            // From here on it is not in the set. An operation that does not succeed leaves it to
            // the next.
            static_cast<void>(co_await unlink(*spot, spot->next, pin));
            co_return true;
        }
    }

    // `made` is what was allocated and is not in the list.
    rdma::Task<Result<bool>> link(K key, const Epochs::Pin& pin, ptr<Item>& made) {
        for (;;) {
            const auto spot = co_await find(key, pin);
            if (!spot) co_return spot.error();
            if (spot->found) co_return false;
            Item item;
            item.next = nic<std::uint64_t>(spot->here);
            item.key = key;
            const auto written = co_await put(made, item);
            if (!written) co_return written.error();
            made = *written;
            if (const auto held = pin.check(); !held) co_return held.error();
            const auto found =
                co_await lanes_->compare_exchange(spot->link, spot->here, made.bits()).shielded();
            if (!found) made = nullptr;  // It may be in the list: the node is lost.
            if (!found) co_return found.error();
            if (*found != spot->here) continue;
            made = nullptr;
            co_return true;
        }
    }
    rdma::Task<Result<Spot>> find(K key, const Epochs::Pin& pin) {
        for (;;) {
            Spot spot{first_.template field<&Item::next>()};
            const auto first = co_await lanes_->read(spot.link);
            if (!first) co_return first.error();
            spot.here = *first;
            const auto whole = co_await walk(spot, key, pin);
            if (!whole) co_return whole.error();
            if (*whole) co_return spot;
        }
    }
    // False if the list changed under it.
    rdma::Task<Result<bool>> walk(Spot& spot, K key, const Epochs::Pin& pin) {
        while (spot.here != 0) {
            const auto at = ptr<Item>::from_bits(spot.here);
            const auto item = co_await lanes_->read(at);
            if (!item) co_return item.error();
            spot.next = item->next.load();
            if ((spot.next & kRemoved) != 0) {
                const auto unlinked = co_await unlink(spot, spot.next & ~kRemoved, pin);
                if (!unlinked) co_return unlinked.error();
                if (!*unlinked) co_return false;
                spot.here = spot.next & ~kRemoved;
                continue;
            }
            spot.found = item->key == key;
            if (spot.found || key < item->key) co_return true;
            spot.link = at.template field<&Item::next>();
            spot.here = spot.next;
        }
        co_return true;
    }
    // The operation that unlinks an item retires it.
    rdma::Task<Result<bool>> unlink(Spot spot, std::uint64_t next, const Epochs::Pin& pin) {
        if (const auto held = pin.check(); !held) co_return held.error();
        const auto found = co_await lanes_->compare_exchange(spot.link, spot.here, next).shielded();
        if (!found) co_return found.error();
        if (*found != spot.here) co_return false;
        epochs_->retire(ptr<Item>::from_bits(spot.here));
        co_return true;
    }
    // On the own node if it has memory.
    rdma::Task<Result<ptr<Item>>> put(ptr<Item> where, Item item) {
        if (!where) {
            const bool own = allocator_->has_memory(lanes_->self());
            const NodeId node = own ? lanes_->self() : first_.node();
            co_return co_await allocator_->make(node, item);
        }
        const auto written = co_await lanes_->write(where, item).shielded();
        if (!written) co_return written.error();
        co_return where;
    }

    Lanes* lanes_;
    Allocator* allocator_;
    Epochs* epochs_;
    ptr<Item> first_;  // Has no key.
};

}  // namespace feroce::gas
