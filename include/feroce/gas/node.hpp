// Node: this process as one of a cluster. It shares a segment of its memory with the others, and
// reaches theirs. Joining is collective: every node of the cluster joins, in any order, and each
// returns when it is connected with all. There is no daemon and no hidden thread.
//
//   auto node = gas::Node::join();                     // Rank, size and seed: the environment.
//   auto counter = node->share<gas::nic<std::uint64_t>>("counter");
//   node->fetch_add(*counter, 1);                      // Blocking: one round trip.
//   node->barrier();
//
// The functions here block and are for the thread that joined. Each of the `threads` has its own
// lanes(thread), whose operations can be awaited, and which only that thread may use.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "feroce/gas/allocator.hpp"
#include "feroce/gas/epochs.hpp"
#include "feroce/gas/lanes.hpp"
#include "feroce/gas/placement.hpp"
#include "feroce/runtime.hpp"

namespace feroce::gas {

struct NodeOptions {
    Placement placement;
    std::uint64_t memory = 16 << 20;  // Shared with the others. 0: a node that only computes.
    std::uint16_t threads = 1;
    Duration patience = std::chrono::seconds(30);  // For the others to come, and for a name.
    // How long a node may not answer one that asks it before it is lost, for good. What is asked
    // meanwhile is repeated and waits: a network that fails for a shorter time delays, no more.
    Duration silence = std::chrono::seconds(4);
    // How long a thread that waits polls before it sleeps. A round trip between processes that
    // share their cores with others takes 10 to 60 us, and a thread that has slept is late.
    Duration spin = std::chrono::microseconds(100);
    // False: atomics on words of the own node go through the device, as on NICs.
    bool trust_global_atomics = true;
    Lease lease;                // Of locks that survive their holders.
    bool check_memory = false;  // Finds blocks of this node that are freed twice or never.
    std::function<std::unique_ptr<rdma::Runtime>()> runtime;  // One per thread. Empty: real ones.
};

class Node {
public:
    class Core;

    static Result<Node> join();
    static Result<Node> join(NodeOptions options);
    Node(Node&&) noexcept;
    Node& operator=(Node&&) noexcept;
    ~Node();  // Without leave(): the others see it as lost.

    NodeId id() const;
    std::uint16_t size() const;
    Lanes& lanes(std::size_t thread = 0);
    Allocator& allocator(std::size_t thread = 0);
    Epochs& epochs(std::size_t thread = 0);
    rdma::Loop& loop(std::size_t thread = 0) { return lanes(thread).loop(); }

    // A value of its own, on this node or another: zero round trips most of the time.
    template <Shareable T>
    Result<ptr<T>> allocate(const T& value = T()) {
        return allocate_on(id(), value);
    }
    template <Shareable T>
    Result<ptr<T>> allocate_on(NodeId node, const T& value = T()) {
        return allocator().make(node, value).wait();
    }
    template <class T>
    Result<> free(ptr<T> object) {
        return allocator().destroy(object).wait();
    }

    template <Shareable T>
    Result<value_type_of<T>> read(ptr<T> from) {
        return lanes().read(from).wait();
    }
    template <Shareable T>
    Result<> write(ptr<T> to, const value_type_of<T>& value) {
        return lanes().write(to, value).wait();
    }
    template <class T>
    Result<T> compare_exchange(ptr<nic<T>> word, std::type_identity_t<T> expected,
                               std::type_identity_t<T> desired) {
        return lanes().compare_exchange(word, expected, desired).wait();
    }
    template <class T>
    Result<T> fetch_add(ptr<nic<T>> word, std::type_identity_t<T> amount) {
        return lanes().fetch_add(word, amount).wait();
    }
    template <class T>
    Result<T> exchange(ptr<nic<T>> word, std::type_identity_t<T> desired) {
        return lanes().exchange(word, desired).wait();
    }

    // Gives a pointer a name that all nodes can find it by. EEXIST if the name is taken.
    template <Shareable T>
    Result<> publish(std::string_view name, ptr<T> pointer) {
        return publish_root(name, pointer.bits(), sizeof(T));
    }
    // Frees the name, not the object. ENOENT if nobody has published it.
    Result<> withdraw(std::string_view name);
    // Waits until somebody has published it.
    template <Shareable T>
    Result<ptr<T>> find(std::string_view name) {
        const Result<std::uint64_t> bits = find_root(name, sizeof(T), false);
        if (!bits) return bits.error();
        return ptr<T>::from_bits(*bits);
    }
    // One object for all: the first node that lives makes it from its value, the others find it.
    template <Shareable T>
    Result<ptr<T>> share(std::string_view name, const T& value = T()) {
        ptr<T> unused;  // If another object got the name first.
        const auto make = [&]() -> Result<ptr<T>> {
            Result<ptr<T>> made = allocate(value);
            if (made) unused = *made;
            return made;
        };
        Result<ptr<T>> out = share_made<T>(name, make);
        if (unused && (!out || *out != unused)) static_cast<void>(free(unused));
        return out;
    }
    // The same for what `make` makes, once at most: see share.hpp for containers.
    template <Shareable T, class Make>
    Result<ptr<T>> share_made(std::string_view name, Make make) {
        Result<ptr<T>> made = ptr<T>();
        for (;;) {
            const Result<std::uint64_t> found = find_root(name, sizeof(T), true);
            if (!found) return found.error();
            if (*found != 0) return ptr<T>::from_bits(*found);
            if (!*made) made = make();
            if (!made) return made;
            const Result<> done = publish(name, *made);
            if (done) return made;
            if (done.error().code != EEXIST) return done.error();
        }
    }

    // The same for memory of no type: all say how many bytes it has. Shared memory is all zero.
    Result<> publish_memory(std::string_view name, ptr<void> memory, std::size_t bytes) {
        return publish_root(name, memory.bits(), bytes);
    }
    Result<ptr<void>> find_memory(std::string_view name, std::size_t bytes);
    Result<ptr<void>> share_memory(std::string_view name, std::size_t bytes);

    // Returns when all nodes that live have called it. If a node was found lost since the last
    // time, fails with an error that names it, though the others have met: the next one is theirs,
    // and tells of nodes that were lost after they had come to this one. Not all are told at the
    // same barrier. ESTALE: the others have found this node lost, and go on without it.
    Result<> barrier();
    // All nodes that live call it, and all get the value of that one.
    template <Shareable T>
    Result<T> broadcast(const T& value, NodeId from = NodeId{0}) {
        std::uint64_t bits = 0;  // Null if it does not succeed: then it does not for anybody.
        if (id() == from)
            if (const auto made = allocator().make_in_turn(value).wait(); made) bits = made->bits();
        const auto told = tell(from, bits);
        const auto there = ptr<T>::from_bits(told ? *told : 0);
        const Result<T> out = told ? lanes().read(there).wait() : Result<T>(told.error());
        // Also where that failed, or the nodes would be at different barriers from here on.
        if (const Result<> met = meet(); !met) return met.error();
        if (id() == from && there)
            if (const Result<> freed = free(there); !freed) return freed.error();
        return out;
    }
    // Blocks of this node's memory that any node allocated and none has freed; counted if it
    // joined with check_memory, else 0.
    std::uint64_t blocks_in_use() const;
    // A last barrier; then nothing is left between this node and the others.
    Result<> leave();

private:
    explicit Node(std::unique_ptr<Core> core);

    Result<> publish_root(std::string_view name, std::uint64_t bits, std::size_t object_bytes);
    Result<std::uint64_t> find_root(std::string_view name, std::size_t object_bytes, bool may_make);
    Result<> meet();  // A barrier that does not tell of losses.
    Result<std::uint64_t> tell(NodeId from, std::uint64_t bits);

    std::unique_ptr<Core> core_;
};

}  // namespace feroce::gas
