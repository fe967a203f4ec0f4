// Queue<T>: first in, first out, for any number of threads on both sides, without locks (Michael
// and Scott). A push and a pop are three round trips each. All of it is on one node.
//
// Somebody always gets on, but threads of the queue's node that never pause can keep others from
// it. Every operation is linearizable, and a thread that dies in the middle of one leaves a whole
// queue: an end that lags behind is moved on by the next.
#pragma once

#include <optional>

#include "feroce/gas/node.hpp"

namespace feroce::gas {

template <Shareable T>
class Queue {
public:
    static_assert(sizeof(T) + 64 <= kChainBytes, "the values are too large: queue pointers");
    struct Item {
        nic<std::uint64_t> next;  // Bits of the next one.
        T value{};
    };
    struct alignas(64) Root {
        nic<std::uint64_t> head;  // The item before the first: its value has been taken.
        nic<std::uint64_t> tail;  // The last one, or one before it.
    };

    static Result<ptr<Root>> create(Node& node) {
        const auto first = node.allocate(Item());
        if (!first) return first.error();
        Root root;
        root.head = nic<std::uint64_t>(first->bits());
        root.tail = root.head;
        return node.allocate(root);
    }
    // For one thread.
    Queue(Node& node, ptr<Root> root, std::size_t thread = 0)
        : lanes_(&node.lanes(thread)),
          allocator_(&node.allocator(thread)),
          epochs_(&node.epochs(thread)),
          root_(root) {}

    rdma::Task<Result<>> push(T value) {
        const Epochs::Pin pin = epochs_->pin();
        const auto memory =
            co_await allocator_->allocate(root_.node(), sizeof(Item), alignof(Item));
        if (!memory) co_return memory.error();
        const ptr<Item> made = memory->template as<Item>();
        Item item;
        item.value = value;
        std::uint64_t last = 0;
        auto both = lanes_->chain(root_.node());
        both.write(made, item).read(tail(), last);
        if (const auto done = co_await both; !done) co_return done.error();
        for (;;) {
            const auto after = co_await lanes_->compare_exchange(next_of(last), 0, made.bits());
            if (!after) co_return after.error();
            // The tail moves on to what is behind it: ours, or what was there before.
            const std::uint64_t next = *after == 0 ? made.bits() : *after;
            const auto moved = co_await lanes_->compare_exchange(tail(), last, next);
            if (!moved) co_return moved.error();
            if (*after == 0) co_return Result<>();
            last = *moved == last ? next : *moved;
        }
    }

    // Nothing if it was empty.
    rdma::Task<Result<std::optional<T>>> pop() {
        const Epochs::Pin pin = epochs_->pin();
        for (;;) {
            std::uint64_t before = 0, last = 0;
            auto ends = lanes_->chain(root_.node());
            ends.read(head(), before).read(tail(), last);
            if (const auto done = co_await ends; !done) co_return done.error();
            const auto first = co_await lanes_->read(next_of(before));
            if (!first) co_return first.error();
            if (*first == 0) co_return std::optional<T>();
            if (before == last) {  // The head must not overtake the tail.
                const auto moved = co_await lanes_->compare_exchange(tail(), last, *first);
                if (!moved) co_return moved.error();
            }
            const auto taken = co_await take(before, *first);
            if (!taken || *taken) co_return taken;
        }
    }

private:
    // Nothing if somebody else took it.
    rdma::Task<Result<std::optional<T>>> take(std::uint64_t before, std::uint64_t first) {
        T value{};
        std::uint64_t found = 0;
        auto both = lanes_->chain(root_.node());
        both.read(ptr<Item>::from_bits(first).template field<&Item::value>(), value);
        both.compare_exchange(head(), before, first, found);
        if (const auto done = co_await both; !done) co_return done.error();
        if (found != before) co_return std::optional<T>();
        const auto retired = co_await epochs_->retire(ptr<Item>::from_bits(before));
        if (!retired) co_return retired.error();
        co_return std::optional<T>(value);
    }
    ptr<nic<std::uint64_t>> head() const { return root_.template field<&Root::head>(); }
    ptr<nic<std::uint64_t>> tail() const { return root_.template field<&Root::tail>(); }
    static ptr<nic<std::uint64_t>> next_of(std::uint64_t item) {
        return ptr<Item>::from_bits(item).template field<&Item::next>();
    }

    Lanes* lanes_;
    Allocator* allocator_;
    Epochs* epochs_;
    ptr<Root> root_;
};

}  // namespace feroce::gas
