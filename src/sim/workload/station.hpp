// Station: what all endpoints of one node share: protection domain, completion queues, the words
// that atomics work on, a library of constant bytes to READ, and a shared receive queue.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/completion_queue.hpp"
#include "sim/check/checks.hpp"
#include "sim/workload/slots.hpp"
#include "sim/workload/swarm.hpp"
#include "sim/world.hpp"

namespace feroce::sim {

// What every part of a workload works with. Owned by the scenario.
struct Context {
    World& world;
    const Swarm& swarm;
    Checks& checks;
    Prng& random;
    std::uint64_t next_id = 1;  // Of work requests and patterns.
    bool late_receives = false;

    std::uint64_t id() { return next_id++; }
    bool draws_far() { return swarm.far && random.chance(0.5); }
};

class Station;

// Keeps receives posted, each into a slot of its own.
class ReceivePool {
public:
    // As which queue the checkers know it, if it is shared: a number that no queue pair has.
    static constexpr std::uint32_t kShared = 1;
    static constexpr std::uint32_t kXrc = 2;
    static constexpr std::uint32_t kFirstOwn = 1u << 24;
    ReceivePool(Context& context, Station& station, Slots slots, std::uint32_t number);

    void serve(transport::QueuePair* qp);  // Null: nobody for now.
    void serve(transport::ReceiveQueue* srq);
    void set_key(LKey key) { key_ = key; }
    LKey key() const { return key_; }
    Range region() const { return slots_.region(); }

    void top_up();  // At once or, where receives come late, some time later.
    // The place of a receive that completed, which is free from now on.
    std::optional<Range> take_back(std::uint64_t wr_id);
    void take_back_all();  // The queue is gone.
    std::size_t posted() const { return posted_.size(); }
    QueueKey shared_key() const;

private:
    void post_all();

    Context& context_;
    Station& station_;
    Slots slots_;
    std::uint32_t number_;
    LKey key_;
    transport::QueuePair* qp_ = nullptr;
    transport::ReceiveQueue* srq_ = nullptr;
    bool scheduled_ = false;
    std::map<std::uint64_t, std::size_t> posted_;  // Slot by request.
};

class Station {
public:
    static constexpr std::uint32_t kFetchWords = 4;
    static constexpr std::uint32_t kWords = 64;  // Fetch-add words, then one per endpoint.

    Station(Context& context, Node& node);

    void lay_out();  // Takes its memory.
    void fill();     // After the shadow knows the memory.
    void register_all();
    void close();  // Gives everything back; what is still there is a finding.

    Node& node() { return node_; }
    PdId pd() const { return pd_; }
    device::CompletionQueue& send_cq() { return *send_cq_; }
    device::CompletionQueue& receive_cq() {
        return context_.swarm.one_cq ? *send_cq_ : *receive_cq_;
    }
    ReceivePool& shared_pool() { return *shared_pool_; }
    transport::ReceiveQueue& srq() { return *srq_; }

    // The receive queue that XRC requests to this node name, with a completion queue of its own.
    ReceivePool& xrc_pool() { return *xrc_pool_; }
    device::CompletionQueue& xrc_cq() { return *xrc_cq_; }
    std::uint32_t xrc_domain() const { return xrc_domain_; }
    SrqNumber xrc_srq() const { return xrc_number_; }
    void replace_xrc_srq();  // Both are destroyed and made again, under whatever goes on.

    // Destroys them. Some are kept where nobody but the checks sees them: what still uses a queue
    // after its end is found either there or, without a memory checker, not at all.
    void destroy(std::unique_ptr<device::CompletionQueue> cq);
    void destroy(std::unique_ptr<transport::ReceiveQueue> srq);
    using Destroyed = std::vector<std::unique_ptr<device::CompletionQueue>>;
    const Destroyed& destroyed() const { return destroyed_cqs_; }

    std::uint32_t claim_word() { return next_word_++; }  // For an endpoint's compare-and-swap.
    WordKey word(std::uint32_t index) const { return {node_.id(), words_.offset + index * 8}; }
    std::uint64_t word_value(std::uint32_t index);
    RKey words_key() const { return words_keys_.rkey; }
    Range library() const { return library_; }
    RKey library_key() const { return library_keys_.rkey; }
    Pattern library_pattern(std::uint64_t start) const { return {library_id_, start}; }

private:
    void make_xrc_srq();
    void destroy_xrc_srq();
    void check_destroyed();

    Context& context_;
    Node& node_;
    PdId pd_;
    std::unique_ptr<device::CompletionQueue> send_cq_;
    std::unique_ptr<device::CompletionQueue> receive_cq_;
    std::unique_ptr<transport::ReceiveQueue> srq_;
    std::unique_ptr<ReceivePool> shared_pool_;
    std::uint32_t xrc_domain_ = 0;
    SrqNumber xrc_number_;
    std::unique_ptr<device::CompletionQueue> xrc_cq_;
    std::unique_ptr<transport::ReceiveQueue> xrc_queue_;
    std::unique_ptr<ReceivePool> xrc_pool_;
    Range words_;
    Range library_;
    std::uint64_t library_id_ = 0;
    std::uint32_t next_word_ = kFetchWords;
    struct DestroyedSrq {
        std::unique_ptr<transport::ReceiveQueue> queue;
        std::uint32_t available = 0;  // When it was destroyed.
    };
    Destroyed destroyed_cqs_;
    std::vector<DestroyedSrq> destroyed_srqs_;
    mem::RegionKeys words_keys_;
    mem::RegionKeys library_keys_;
};

// Registers a range of a node's memory under its fixed name.
mem::RegionKeys register_range(Node& node, PdId pd, Range range, mem::AccessSet access,
                               bool far = false);

}  // namespace feroce::sim
