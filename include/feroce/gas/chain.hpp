// Chain: a few operations on the memory of one node, posted by one doorbell, done in the order in
// which they were added, and waited for as one: a round trip. `co_await chain`, or chain.wait().
//
//   std::uint64_t found = 0;
//   Line line;
//   auto both = lanes.chain(lock.node());
//   both.compare_exchange(lock.field<&Line::tail>(), 0, me, found).read(lock, line);
//   if (auto done = co_await both; !done) ...   // Neither found nor line may be believed.
//
// What is ordered: each step sees what those before it did, on that node. A fence is set only where
// RDMA does not order by itself: a WRITE behind a READ or an atomic, an atomic behind a READ. The
// first step that fails stops the rest and breaks the lane.
//
// Operands and results stand in the caller's memory and must live until the chain is done. They go
// through buffers of the lane, so a chain that was given up touches them no more: what it writes
// was copied when it was posted, and what arrives for it later is dropped. Up to kChainBytes a
// chain allocates nothing; more is copied through a buffer that is made for it. Steps on the own
// node run on the CPU where the kind of word lets them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "feroce/error.hpp"
#include "feroce/gas/ptr.hpp"
#include "feroce/gas/word.hpp"
#include "feroce/suspension.hpp"

namespace feroce::gas {

using rdma::Error;
using rdma::Result;

class Lanes;

inline constexpr std::size_t kChainSteps = 4;
inline constexpr std::size_t kChainBytes = 1024;
inline constexpr std::uint32_t kStepBytes = std::uint32_t{1} << 31;  // What RDMA carries at most.

namespace detail {

struct Slot;

struct Step {
    enum class Kind : std::uint8_t { Read, Write, CompareExchange, FetchAdd };
    Kind kind = Kind::Read;
    std::uint32_t bytes = 0;
    std::uint64_t remote = 0;
    void* local = nullptr;       // Where a result goes; what a WRITE takes, null: `desired`.
    std::uint64_t expected = 0;  // Of a compare-and-swap; the amount of a fetch-add.
    std::uint64_t desired = 0;
    bool for_nic = false;  // Changes a nic word.
};

// Why a chain did not do what it should.
enum class Fault : std::uint8_t {
    None,
    Steps,      // None, or too many.
    Nodes,      // More than one.
    Bounds,     // Memory that its node does not share.
    Alignment,  // Of an atomic.
    Size,       // More than a message carries.
    NoBuffer,   // For what it carries.
    NoLane,     // To that node.
    Lost,       // The lane; it says why.
    Outcast,    // This node is lost for the others.
    TimedOut,
    Canceled,
};

using rdma::detail::Forward;

}  // namespace detail

class [[nodiscard]] Chain : public rdma::Suspension {
public:
    Chain(Lanes& lanes, NodeId node);
    ~Chain();

    template <Shareable T>
    Chain& read(ptr<T> from, value_type_of<T>& into) {
        return add(from, {detail::Step::Kind::Read, sizeof into, from.address(), &into});
    }
    // Small values are kept in the chain; larger ones must outlive it, so no temporaries.
    template <Shareable T>
    Chain& write(ptr<T> to, const value_type_of<T>& value) {
        detail::Step step{.kind = detail::Step::Kind::Write,
                          .bytes = sizeof value,
                          .remote = to.address(),
                          .local = const_cast<value_type_of<T>*>(&value),
                          .for_nic = detail::is_nic<T>};
        if constexpr (sizeof value <= sizeof step.desired) {
            std::memcpy(&step.desired, &value, sizeof value);
            step.local = nullptr;
        }
        return add(to, step);
    }
    template <Shareable T>
    requires(sizeof(value_type_of<T>) > 8) Chain& write(ptr<T> to,
                                                        const value_type_of<T>&& value) = delete;
    template <Shareable T>
    Chain& read(span<T> from, T* into) {
        return add(from.data(),
                   {detail::Step::Kind::Read, size_of(from), from.data().address(), into});
    }
    template <Shareable T>
    Chain& write(span<T> to, const T* values) {
        return add(to.data(), {detail::Step::Kind::Write, size_of(to), to.data().address(),
                               const_cast<T*>(values)});
    }
    // Replaces `expected`; `found` becomes what was there, equal to it if that succeeded.
    template <class T>
    Chain& compare_exchange(ptr<nic<T>> word, std::type_identity_t<T> expected,
                            std::type_identity_t<T> desired, T& found) {
        return add(word, {detail::Step::Kind::CompareExchange, 8, word.address(), &found,
                          std::bit_cast<std::uint64_t>(expected),
                          std::bit_cast<std::uint64_t>(desired), true});
    }
    template <class T>
    requires std::is_integral_v<T> Chain& fetch_add(ptr<nic<T>> word,
                                                    std::type_identity_t<T> amount, T& before) {
        return add(word, {detail::Step::Kind::FetchAdd, 8, word.address(), &before,
                          std::bit_cast<std::uint64_t>(amount), 0, true});
    }

    // Limits of the task that awaits it do not reach it.
    auto shielded() {
        shield();
        return detail::Forward(*this);
    }

    bool await_ready();
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) {
        return start(handle, rdma::detail::limits_of(handle));
    }
    Result<> await_resume() { return outcome(); }
    // Blocks this thread; its loop goes on meanwhile.
    Result<> wait();

private:
    friend class Lanes;

    template <class T>
    Chain& add(ptr<T> target, const detail::Step& step) {
        return add_step(target.node(), step);
    }
    template <class T>
    static std::uint32_t size_of(span<T> memory) {
        return memory.size_bytes() > UINT32_MAX ? UINT32_MAX
                                                : static_cast<std::uint32_t>(memory.size_bytes());
    }
    Chain& add_step(NodeId node, const detail::Step& step);
    bool start(std::coroutine_handle<> handle, const rdma::Limits* outer);
    Result<> outcome();

    Lanes& lanes_;
    NodeId node_;
    std::array<detail::Step, kChainSteps> steps_;
    std::size_t count_ = 0;
    detail::Slot* slot_ = nullptr;  // While it is in flight.
    detail::Fault fault_ = detail::Fault::None;
};

}  // namespace feroce::gas
