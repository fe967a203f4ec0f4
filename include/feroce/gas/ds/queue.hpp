// Queue<T>: first in, first out, for any number of threads on both sides, without locks (Michael
// and Scott). A push and a pop are three round trips each. All of it is on one node.
//
// Somebody always gets on; and since threads of the queue's own node are faster than others, who
// has lost to them a few times asks for its turn, and they wait for it, though not for long: it may
// have died. Every operation is linearizable, and a thread that dies in the middle of one leaves a
// whole queue: an end that lags behind is moved on by the next. A call that fails with ETIMEDOUT or
// ECANCELED has pushed or taken nothing; one that has taken an element gives it, whatever else
// fails. If the coroutine of a pop is destroyed just then, what it has taken goes back to the end
// of the queue. Any number of tasks of the thread may use one handle at the same time.
#pragma once

#include <optional>
#include <utility>

#include "feroce/gas/call.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/gas/sync/mutex.hpp"
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
        nic<std::uint64_t> turn;  // Who asks threads of this node to wait; 0: nobody.
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
    Queue(Node& node, ptr<Root> root, std::size_t thread = 0)
        : lanes_(&node.lanes(thread)),
          allocator_(&node.allocator(thread)),
          epochs_(&node.epochs(thread)),
          root_(root),
          home_(node.lanes(thread).local(root)) {}

    Call<> push(T value) { return {lanes_->loop(), append(value)}; }
    // Nothing if it was empty.
    Call<std::optional<T>> pop() { return {lanes_->loop(), take_first()}; }

private:
    static constexpr unsigned kLossesBeforeTurn = 2;
    // Longer than an operation takes, and short where its thread has died.
    static constexpr Duration kTurnTime = std::chrono::milliseconds(1);
    struct Turn {
        unsigned losses = 0;
        std::uint64_t claim = 0;  // Not 0: asked for.
        std::uint64_t found = 0;  // In its place.
    };

    struct Ends {
        std::uint64_t before;  // The head.
        std::uint64_t last;    // The tail.
        std::uint64_t first;   // Behind the head.
    };

    rdma::Task<Result<>> append(T value) {
        if (const auto polite = co_await give_way(); !polite) co_return polite.error();
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
        if (const auto polite = co_await give_way(); !polite) co_return polite.error();
        Turn turn;
        const auto put_back = [self = *this](std::optional<T> value) mutable -> rdma::Task<void> {
            if (value) static_cast<void>(co_await self.append(*value));
        };
        for (;;) {
            Epochs::Pin pin = epochs_->pin();
            std::uint64_t before = 0, last = 0;
            auto ends = lanes_->chain(root_.node());
            ask(ends, turn);
            ends.read(head(), before).read(tail(), last);
            if (const auto done = co_await ends; !done)
                co_return co_await end_with(turn, done.error());
            const auto first = co_await lanes_->read(next_of(before));
            if (!first) co_return co_await end_with(turn, first.error());
            if (*first == 0) {
                co_await end(turn);
                co_return std::optional<T>();
            }
            rdma::Shelter taking(epochs_->shelter(),
                                 take(*this, std::move(pin), turn, {before, last, *first}),
                                 put_back);
            taking.shield();
            const auto taken = co_await taking;
            if (!taken) co_return co_await end_with(turn, taken.error());
            if (*taken) co_return taken;
            ++turn.losses;
        }
    }

    // Threads of this node wait while somebody else has its turn.
    rdma::Task<Result<>> give_way() {
        const std::uint64_t claim = home_ == nullptr ? 0 : home_->turn.load();
        if (claim == 0) co_return Result<>();
        Backoff backoff(*lanes_);
        const Instant end = lanes_->loop().after(kTurnTime);
        while (home_->turn.load() == claim && lanes_->loop().now() < end)
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
        if (home_->turn.load() == claim) co_return co_await clear(claim);
        co_return Result<>();
    }
    // Turns are asked for, and given back, on the way of something else. After another loss again:
    // the time may be over. They are a courtesy: nothing fails for want of one.
    void ask(Chain& step, Turn& turn) {
        if (home_ != nullptr || turn.losses < kLossesBeforeTurn) return;
        if (turn.claim == 0) turn.claim = lanes_->new_claim();
        step.compare_exchange(turn_word(), 0, turn.claim, turn.found);
    }
    void give_back(Chain& step, Turn& turn) {
        if (turn.claim != 0) step.compare_exchange(turn_word(), turn.claim, 0, turn.found);
    }
    rdma::Task<void> end(Turn turn) {
        if (turn.claim != 0) static_cast<void>(co_await clear(turn.claim));
    }
    rdma::Task<Error> end_with(Turn turn, Error why) {
        co_await end(turn);
        co_return why;
    }
    rdma::Task<Result<>> clear(std::uint64_t claim) {
        const auto found = co_await lanes_->compare_exchange(turn_word(), claim, 0).shielded();
        if (!found) co_return found.error();
        co_return Result<>();
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
                co_return co_await self.end_with(turn, held.error());
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
                self.give_back(step, turn);
            else
                self.ask(step, turn);
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
        co_await self.end(turn);
        co_return std::optional<T>(value);
    }
    ptr<nic<std::uint64_t>> head() const { return root_.template field<&Root::head>(); }
    ptr<nic<std::uint64_t>> tail() const { return root_.template field<&Root::tail>(); }
    ptr<nic<std::uint64_t>> turn_word() const { return root_.template field<&Root::turn>(); }
    static ptr<nic<std::uint64_t>> next_of(std::uint64_t item) {
        return ptr<Item>::from_bits(item).template field<&Item::next>();
    }

    Lanes* lanes_;
    Allocator* allocator_;
    Epochs* epochs_;
    ptr<Root> root_;
    const Root* home_;  // On the queue's node only.
};

}  // namespace feroce::gas
