// Queue<T>: first in, first out, for any number of threads on both sides, without locks (Michael
// and Scott). A push and a pop are three round trips each. All of it is on one node.
//
// Some thread always gets on, and threads of other nodes than the queue's have their turn
// (Turnstile). Every operation is linearizable, and a thread that dies in the middle of one leaves
// a whole queue: an end that lags behind is moved on by the next. A call that fails with ETIMEDOUT
// or ECANCELED has pushed or taken nothing; one that has taken an element gives it, whatever else
// fails. If the coroutine of a pop is destroyed just then, what it has taken goes back to the end
// of the queue. Any number of tasks of the thread may use one handle at the same time.
#pragma once

#include <optional>
#include <utility>

#include "feroce/gas/call.hpp"
#include "feroce/gas/ds/turnstile.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/shelter.hpp"

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
        nic<std::uint64_t> turn;  // Of the turnstile.
    };

    static Result<ptr<Root>> create(Node& node) {
        const auto first = node.allocate(Item());
        if (!first) return first.error();
        Root root;
        root.head = nic<std::uint64_t>(first->bits());
        root.tail = root.head;
        const Result<ptr<Root>> made = node.allocate(root);
        if (!made) static_cast<void>(node.free(*first));
        return made;
    }
    // For one thread.
    static Result<Queue> open(Node& node, ptr<Root> root, std::size_t thread = 0) {
        return Queue(node, root, thread);
    }
    Queue(Node& node, ptr<Root> root, std::size_t thread = 0)
        : lanes_(&node.lanes(thread)),
          allocator_(&node.allocator(thread)),
          epochs_(&node.epochs(thread)),
          root_(root),
          turnstile_(node.lanes(thread), root.template field<&Root::turn>()) {}

    Call<> push(T value) { return {lanes_->loop(), append(value)}; }
    // Nothing if it was empty.
    Call<std::optional<T>> pop() { return {lanes_->loop(), take_first()}; }

private:
    using Turn = detail::Turnstile::Turn;
    struct Ends {
        std::uint64_t before;  // The head.
        std::uint64_t last;    // The tail.
        std::uint64_t first;   // Behind the head.
    };

    rdma::Task<Result<>> append(T value) {
        if (const auto polite = co_await turnstile_.give_way(); !polite) co_return polite.error();
        Epochs::Pin pin = epochs_->pin();
        const auto memory =
            co_await allocator_->allocate(root_.node(), sizeof(Item), alignof(Item));
        if (!memory) co_return memory.error();
        // It goes on though the coroutine is destroyed, so it has a copy of the handle.
        rdma::Shelter linked(epochs_->shelter(),
                             link(*this, std::move(pin), memory->template as<Item>(), value),
                             rdma::NoUndo{});
        linked.shield();
        co_return co_await linked;
    }

    rdma::Task<Result<std::optional<T>>> take_first() {
        if (const auto polite = co_await turnstile_.give_way(); !polite) co_return polite.error();
        Turn turn;
        const auto put_back = [self = *this](std::optional<T> value) mutable -> rdma::Task<void> {
            if (value) static_cast<void>(co_await self.append(*value));
        };
        for (;;) {
            Epochs::Pin pin = epochs_->pin();
            std::uint64_t before = 0, last = 0;
            auto ends = lanes_->chain(root_.node());
            turnstile_.ask(ends, turn);
            ends.read(head(), before).read(tail(), last);
            if (const auto done = co_await ends; !done)
                co_return co_await turnstile_.end_with(turn, done.error());
            const auto first = co_await lanes_->read(next_of(before));
            if (!first) co_return co_await turnstile_.end_with(turn, first.error());
            if (*first == 0) {
                co_await turnstile_.end(turn);
                co_return std::optional<T>();
            }
            rdma::Shelter taking(epochs_->shelter(),
                                 take(*this, std::move(pin), turn, {before, last, *first}),
                                 put_back);
            taking.shield();
            const auto taken = co_await taking;
            if (!taken) co_return co_await turnstile_.end_with(turn, taken.error());
            if (*taken) co_return taken;
            ++turn.losses;
        }
    }

    // Appends an item that nobody knows yet.
    static rdma::Task<Result<>> link(Queue self, Epochs::Pin pin, ptr<Item> made, T value) {
        Lanes& lanes = *self.lanes_;
        Turn turn;
        Item item;
        item.value = value;
        std::uint64_t last = 0;
        auto both = lanes.chain(self.root_.node());
        both.write(made, item).read(self.tail(), last);
        if (const auto done = co_await both; !done) co_return done.error();
        for (;;) {
            if (const auto held = pin.check(); !held) {
                static_cast<void>(co_await self.allocator_->destroy(made));
                co_return co_await self.turnstile_.end_with(turn, held.error());
            }
            const auto after = co_await lanes.compare_exchange(next_of(last), 0, made.bits());
            if (!after) co_return after.error();
            // The tail moves on to what is behind it: ours, or what was there before.
            const bool won = *after == 0;
            const std::uint64_t next = won ? made.bits() : *after;
            std::uint64_t moved = 0;
            auto step = lanes.chain(self.root_.node());
            step.compare_exchange(self.tail(), last, next, moved);
            turn.losses += won ? 0 : 1;
            if (won)
                self.turnstile_.give_back(step, turn);
            else
                self.turnstile_.ask(step, turn);
            const auto done = co_await step;
            if (won) co_return Result<>();  // A tail that lags is moved by the next.
            if (!done) co_return done.error();
            last = moved == last ? next : moved;
        }
    }
    // Nothing if somebody else took it.
    static rdma::Task<Result<std::optional<T>>> take(Queue self, Epochs::Pin pin, Turn turn,
                                                     Ends ends) {
        Lanes& lanes = *self.lanes_;
        const auto [before, last, first] = ends;
        if (const auto held = pin.check(); !held) co_return held.error();
        if (before == last) {  // The head must not overtake the tail.
            const auto moved = co_await lanes.compare_exchange(self.tail(), last, first);
            if (!moved) co_return moved.error();
        }
        T value{};
        std::uint64_t found = 0;
        auto both = lanes.chain(self.root_.node());
        both.read(ptr<Item>::from_bits(first).template field<&Item::value>(), value);
        both.compare_exchange(self.head(), before, first, found);
        if (const auto done = co_await both; !done) co_return done.error();
        if (found != before) co_return std::optional<T>();
        self.epochs_->retire(ptr<Item>::from_bits(before));
        co_await self.turnstile_.end(turn);
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
    detail::Turnstile turnstile_;
};

}  // namespace feroce::gas
