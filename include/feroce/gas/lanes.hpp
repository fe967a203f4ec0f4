// Lanes: what one thread reaches the memory of a cluster by: a queue pair of its own to every
// memory node, one completion queue, one loop. Nothing is shared with other threads and nothing is
// allocated per operation; at most kSlots chains are in flight, the next one waits for its turn.
// Chains that the tasks of a loop start in one of its rounds leave together, by one doorbell for
// each node that is asked, the first steps of all before the second ones: sixteen tasks cost hardly
// more system calls than one, and the fences of all chains have one wait in common.
//
//   Result<Item> item = co_await lanes.read(p);              // One round trip.
//   Result<Item> item = lanes.read(p).wait();                // The same, blocking.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "feroce/connection.hpp"
#include "feroce/gas/call.hpp"
#include "feroce/gas/chain.hpp"
#include "feroce/gas/single_step.hpp"
#include "feroce/loop.hpp"
#include "feroce/task.hpp"
#include "feroce/task_group.hpp"

namespace feroce::gas {

// What operations cost. Round trips predict the speed of anything built on RDMA.
struct Traffic {
    std::uint64_t round_trips = 0;  // Chains that crossed a lane.
    std::uint64_t doorbells = 0;
    std::uint64_t reads = 0, writes = 0, atomics = 0;  // Work requests.
    std::uint64_t local = 0;                           // Steps done by the CPU.
};

// How long a lock that can be taken over is held at most, and how long what its holder has posted
// may still be in flight after that. All nodes of a cluster must have the same.
struct Lease {
    Duration time = std::chrono::seconds(5);
    Duration grace = std::chrono::seconds(5);
};

class Lanes {
public:
    // A way to one node. The memory is what pointers to it may point into.
    struct Lane {
        std::optional<rdma::Connection> connection;  // None to the own node, as a rule.
        std::uint32_t rkey = 0;
        std::uint64_t base = 0;
        std::uint64_t bytes = 0;
        std::optional<Error> lost;  // Why it is.
    };
    struct Setup {
        NodeId self{};
        std::uint16_t thread = 0;
        Lease lease{};
        bool global_atomics = false;  // Atomics of the device are atomic against the CPU's.
        ibv_pd* domain = nullptr;     // Of all lanes. Null: there is no device.
        std::uint32_t lkey = 0;       // Of the own segment; the buffers below are within it.
        std::uint32_t inline_bytes = 0;
        std::size_t nodes = 1;
        std::byte* buffers = nullptr;  // buffer_bytes() of the segment, aligned to a cache line.
        // A word for each node, in the own segment; not 0: that one is lost, also if it is this
        // one. Others set them too. Null: nobody is ever lost.
        plain<std::uint64_t>* losses = nullptr;
        // Called when a lane has failed; with the own number where its node refuses this one.
        std::function<void(NodeId)> on_lost = {};
        std::function<void()> before_flush = {};
    };
    static constexpr std::size_t kSlots = 32;
    static constexpr std::uint32_t kInlineBytes = 64;
    static constexpr std::size_t kPlaces = 64;
    static constexpr std::size_t kPlaceBytes = 64;
    // Places for use, and as many in reserve for each other node, which may be lost.
    static constexpr std::size_t buffer_bytes(std::size_t nodes) {
        return kSlots * kChainBytes + nodes * kPlaces * kPlaceBytes;
    }
    // A slot's buffer for more than kChainBytes is kept up to this size.
    static constexpr std::size_t kKeptBytes = 256 << 10;
    // What a queue pair's send queue must hold.
    static constexpr std::size_t kWorkRequests = kSlots * kChainSteps;

    Lanes(rdma::Loop& loop, const Setup& setup);
    ~Lanes();
    Lanes(const Lanes&) = delete;
    Lanes& operator=(const Lanes&) = delete;

    void set_lane(NodeId node, Lane lane);
    Lane& lane(NodeId node) { return lanes_[static_cast<std::size_t>(node)]; }
    // As this thread has found, or as any node has told this one. The own memory never is.
    bool is_lost(NodeId node) const {
        const auto index = static_cast<std::size_t>(node);
        return lanes_[index].lost ||
               (!is_local(node) && setup_.losses != nullptr && setup_.losses[index].load() != 0);
    }
    std::optional<Error> loss_of(NodeId node) const;  // Of another node that is_lost().
    // Ends all connections: what is in flight fails.
    void close();
    // Lets leave what waits for the end of the round.
    void flush();

    rdma::Loop& loop() { return loop_; }
    // Tasks that must finish though their callers have given them up: see rdma::Shelter.
    rdma::TaskGroup& shelter() { return shelter_; }
    NodeId self() const { return setup_.self; }
    const Traffic& traffic() const { return traffic_; }
    const Lease& lease() const { return setup_.lease; }
    // A word that nobody in the cluster has made before, for 2^40 times: the holder of something,
    // since when.
    std::uint64_t new_claim() {
        return (static_cast<std::uint64_t>(setup_.self) + 1) << 48 |
               static_cast<std::uint64_t>(setup_.thread & 0xff) << 40 |
               (++claims_ & ((std::uint64_t{1} << 40) - 1));
    }
    bool is_local(NodeId node) const { return node == setup_.self; }
    // The object itself, if it lives on this node; null if not.
    template <class T>
    T* local(ptr<T> p) const {
        return contains(p, sizeof(T)) ? reinterpret_cast<T*>(p.address()) : nullptr;
    }

    // A cache line of the own segment that other nodes may write: a place in the queue of a lock.
    // Null if kPlaces are taken.
    template <Shareable T>
    requires(sizeof(T) <= kPlaceBytes) ptr<T> take_place() {
        return ptr<T>::from_bits(take_place_bits());
    }
    template <class T>
    void give_place(ptr<T> place) {
        free_places_.push_back(place.address());  // Has had room for it.
    }
    // Instead of one that is never given back: the lock's home was lost, and others of its queue
    // may still write the place. There is a reserve for as many as a thread can have at each node.
    void replace_place();

    Chain chain(NodeId node) { return Chain(*this, node); }

    template <Shareable T>
    auto read(ptr<T> from) {
        return Filled<detail::Value<value_type_of<T>>>(
            *this, from.node(), [from](auto& chain) { chain.read(from, chain.place()); });
    }
    template <Shareable T>
    auto write(ptr<T> to, const value_type_of<T>& value) {
        return Filled<detail::Store<value_type_of<T>>>(
            *this, to.node(), [to](auto& chain) { chain.write(to, chain.place()); }, value);
    }
    // Gives what was there: equal to `expected` if it was replaced.
    template <class T>
    auto compare_exchange(ptr<nic<T>> word, std::type_identity_t<T> expected,
                          std::type_identity_t<T> desired) {
        return Filled<detail::Value<T>>(*this, word.node(), [=](auto& chain) {
            chain.compare_exchange(word, expected, desired, chain.place());
        });
    }
    template <class T>
    requires std::is_integral_v<T>
    auto fetch_add(ptr<nic<T>> word, std::type_identity_t<T> amount) {
        return Filled<detail::Value<T>>(
            *this, word.node(), [=](auto& chain) { chain.fetch_add(word, amount, chain.place()); });
    }
    // There is no swap on the wire: compare-and-swaps, the first with a guess of what is there.
    template <class T>
    Call<T> exchange(ptr<nic<T>> word, T desired, T guess = T{}) {
        return {loop_, exchanging(word, desired, guess)};
    }

private:
    friend class Chain;
    template <class T>
    rdma::Task<Result<T>> exchanging(ptr<nic<T>> word, T desired, T guess) {
        for (;;) {
            Result<T> found = co_await compare_exchange(word, guess, desired);
            if (!found || *found == guess) co_return found;
            guess = *found;
        }
    }

    // Chains cannot be moved, so steps are added where the object is made.
    template <class Base>
    struct [[nodiscard]] Filled : Base {
        template <class Fill, class... Arguments>
        Filled(Lanes& lanes, NodeId node, Fill fill, const Arguments&... arguments)
            : Base(lanes, node, arguments...) {
            fill(static_cast<Base&>(*this));
        }
        auto shielded() {
            this->shield();
            return detail::Forward(*this);
        }
    };

    // What leaves for one node at the end of a round, oldest first.
    struct Batch {
        detail::Slot* first = nullptr;
        detail::Slot* last = nullptr;
    };
    struct Flush : rdma::Deferred {
        Flush(rdma::Loop& loop, Lanes& of);
        Lanes& lanes;
    };

    std::uint64_t take_place_bits();
    bool contains(ptr<void> p, std::size_t bytes) const;
    template <class T>
    bool contains(ptr<T> p, std::size_t bytes) const {
        return contains(p.template as<void>(), bytes);
    }
    detail::Fault check(const Chain& chain) const;
    detail::Fault check(const Lane& lane, const detail::Step& step) const;
    bool runs_here(const Chain& chain) const;
    void run_here(const detail::Step& step);
    // It leaves at the end of the round, or when a slot is free.
    void launch(Chain& chain);
    void gather(Chain& chain);
    Result<> make_room(const Chain& chain, detail::Slot& slot);
    void prepare(const Chain& chain, const Lane& lane, detail::Slot& slot);
    static ibv_send_wr* linked(const Batch& batch);
    void post(NodeId node, const Batch& batch);
    void lose(NodeId node, const Error& why, bool refused);
    bool is_outcast() const;
    void refuse(const ibv_send_wr* first);
    void abandon(Chain& chain);
    void release(detail::Slot& slot);
    void on_completion(detail::Slot& slot, std::size_t step, const ibv_wc& completion);
    Error error_of(const Chain& chain) const;
    Error loss(NodeId node) const;

    rdma::Loop& loop_;
    Setup setup_;
    std::unique_ptr<detail::Slot[]> slots_;
    detail::Slot* free_ = nullptr;
    std::vector<Lane> lanes_;     // By node. End before the slots, which their completions use.
    std::vector<Batch> batches_;  // By node.
    std::vector<NodeId> asked_;   // Whose batch is not empty.
    rdma::List<Chain> waiting_;   // For the end of the round or a slot, oldest first.
    Flush flush_;
    std::vector<std::uint64_t> free_places_;
    std::uint64_t reserve_;      // Of places: the first that was never used,
    std::uint64_t reserve_end_;  // and the end.
    Traffic traffic_;
    std::uint64_t claims_ = 0;
    rdma::TaskGroup shelter_;  // Destroyed first: its tasks use the rest.
};

}  // namespace feroce::gas
