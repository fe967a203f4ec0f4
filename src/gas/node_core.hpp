// Node::Core: what a node owns. Members end in reverse order: lanes first, then the connections of
// others, the memory they reach, the device, and the loops last.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "feroce/completion_queue.hpp"
#include "feroce/device.hpp"
#include "feroce/gas/allocator.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/memory.hpp"
#include "gas/layout.hpp"

namespace feroce::gas {

class Node::Core {
public:
    explicit Core(NodeOptions node_options);
    ~Core();

    std::size_t size() const { return options.placement.size; }
    NodeId id() const { return NodeId{options.placement.rank}; }
    rdma::Loop& loop() { return *loops.front(); }
    Lanes& lane_set(std::size_t thread) { return *lanes[thread]; }
    detail::Layout layout() const { return {size(), options.threads}; }
    // Registered if there is a device.
    Result<> make_segment();
    std::span<std::byte> segment() const;
    detail::Control& control() const;
    std::span<detail::DirectoryEntry> directory() const;
    std::span<plain<std::uint64_t>> losses() const;
    std::span<plain<std::uint64_t>> arrivals() const;
    void make_lanes(std::size_t thread);  // And what is built on them.

    ptr<detail::Control> control_of(NodeId node);

    // Of survivors.cpp. Returns when all nodes that live have called it.
    rdma::Task<Result<>> meet();
    // An error for nodes that were found lost since the last time, but for those that had come to
    // this barrier: of them the next one tells.
    Result<> report_losses();
    rdma::Task<void> say_goodbye();
    // Of names.cpp.
    rdma::Task<Result<>> publish(std::string_view name, std::uint64_t bits, std::size_t bytes);
    rdma::Task<Result<>> withdraw(std::string_view name);
    // Waits for the name. A caller that may make it gets null bits if it is this node's turn.
    rdma::Task<Result<std::uint64_t>> find(std::string_view name, std::size_t bytes, bool may_make);

    NodeOptions options;
    std::vector<std::unique_ptr<rdma::Runtime>> runtimes;
    std::vector<std::unique_ptr<rdma::Loop>> loops;
    std::optional<rdma::Device> device;
    std::optional<rdma::ProtectionDomain> domain;
    std::optional<rdma::Buffer> registered;
    std::byte* unregistered = nullptr;  // A cluster of one needs no device.
    bool global_atomics = true;
    std::vector<std::optional<rdma::CompletionQueue>> completions;
    struct Accepted {
        NodeId from;
        rdma::Connection connection;
    };
    std::vector<Accepted> accepted;  // By which others reach this node's memory.
    std::vector<std::unique_ptr<Lanes>> lanes;
    std::vector<std::unique_ptr<Allocator>> allocators;
    std::vector<std::unique_ptr<Epochs>> epochs;

private:
    void make_epochs(std::size_t thread);
    NodeId node_at(std::size_t index) const { return NodeId{static_cast<std::uint16_t>(index)}; }
    bool is_lost(NodeId node) const { return losses()[static_cast<std::size_t>(node)].load() != 0; }
    bool has_left(NodeId node) const {
        return directory()[static_cast<std::size_t>(node)].left.load() != 0;
    }
    bool lives(NodeId node) const { return !is_lost(node) && !has_left(node); }
    bool cannot_reach(NodeId node) { return lane_set(0).is_lost(node); }
    // ESTALE if the others have found this node lost.
    Result<> check_membership() const;
    // What this node does no longer reach from here on.
    void note_loss(NodeId lost);
    void fence(NodeId lost);
    void take_over_losses();  // That others or other threads have written here.
    // Of a thread's lanes: sets the word for it.
    void on_lost(NodeId node);
    // Before thread 0 posts anything: fences the nodes that were found lost, and passes it on.
    void follow_losses();
    // Of a node that cannot be reached. If it has not left, the others are told.
    rdma::Task<void> lose(NodeId node);
    rdma::Task<void> tell_of_all_losses();  // Of which it has not told them yet.
    std::size_t count_losses() const;
    rdma::Task<void> tell_of_losses(NodeId node);
    rdma::Task<Result<>> look_at(NodeId node);
    rdma::Task<Result<bool>> pass_rounds();
    rdma::Task<Result<bool>> await_flag(std::size_t round, NodeId from);
    rdma::Task<Result<>> meet_survivors();
    rdma::Task<Result<>> tell_arrival(NodeId node);
    rdma::Task<Result<>> look_for_missing();
    bool has_come(NodeId node) const;
    bool is_missing(NodeId node) const { return node != id() && lives(node) && !has_come(node); }
    ptr<plain<std::uint64_t>> losses_of(NodeId node);
    ptr<plain<std::uint64_t>> arrivals_of(NodeId node);

    using NameTable = Guarded<detail::Names>;
    // Changes the names, and says which one; nothing: they are as they should be.
    using EditNames = std::function<Result<std::optional<std::size_t>>(detail::Names&, bool again)>;
    ptr<NameTable::Block> names_of(NodeId node);
    ptr<detail::Named> name_at(NodeId node, std::size_t index);
    rdma::Task<Result<NodeId>> keeper();
    rdma::Task<Result<>> change_names(EditNames edit);
    rdma::Task<Result<>> change_names_at(NodeId node, const EditNames& edit, bool again);
    struct Copy {
        NodeId node;
        NameTable::Hold hold;
        detail::Names names;
    };
    // To all others, under the keeper's lock.
    rdma::Task<Result<>> copy_names(const detail::Names& names, const NameTable::Hold& hold);
    rdma::Task<Result<std::optional<Copy>>> lock_successor(NodeId keeper);
    // ESTALE if others have given up that keeper, as its successor was told.
    rdma::Task<Result<>> look_again(NodeId keeper, NodeId successor);
    using TwoHolds = std::array<const NameTable::Hold*, 2>;
    rdma::Task<Result<>> write_names(const detail::Names& names, NodeId node, TwoHolds holds);

    std::uint64_t epoch_ = 0;                  // Of the barrier.
    std::vector<plain<std::uint64_t>> heard_;  // The losses that another node knows of.
    std::vector<std::uint64_t> arrived_;       // By node: the barrier that it said it has come to.
    std::vector<bool> fenced_;                 // By node.
    std::vector<bool> told_;                   // By node: all that live know that it is lost.
    std::vector<bool> reported_;               // Losses, by node.
};

}  // namespace feroce::gas
