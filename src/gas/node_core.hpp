// Node::Core: what a node owns. Members end in reverse order: lanes first, then the connections of
// others, the memory they reach, the device, and the loops last.
#pragma once

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
    void make_lanes(std::size_t thread);  // And what stands on them.

    ptr<detail::Control> control_of(NodeId node);

    rdma::Task<Result<>> barrier();
    rdma::Task<void> say_goodbye();
    rdma::Task<Result<>> publish(std::string_view name, std::uint64_t bits, std::size_t bytes);
    rdma::Task<Result<>> withdraw(std::string_view name);
    rdma::Task<Result<std::uint64_t>> find(std::string_view name, std::size_t bytes);

    NodeOptions options;
    std::vector<std::unique_ptr<rdma::Runtime>> runtimes;
    std::vector<std::unique_ptr<rdma::Loop>> loops;
    std::optional<rdma::Device> device;
    std::optional<rdma::ProtectionDomain> domain;
    std::optional<rdma::Buffer> registered;
    std::byte* unregistered = nullptr;  // A cluster of one needs no device.
    bool global_atomics = true;
    std::vector<std::optional<rdma::CompletionQueue>> completions;
    std::vector<rdma::Connection> accepted;
    std::vector<std::unique_ptr<Lanes>> lanes;
    std::vector<std::unique_ptr<Allocator>> allocators;
    std::vector<std::unique_ptr<Epochs>> epochs;

private:
    void make_epochs(std::size_t thread);
    rdma::Task<Result<>> await_flag(std::size_t round, NodeId from);
    rdma::Task<Result<>> tell_of_loss(NodeId lost, Error why);
    ptr<Guarded<detail::Names>::Block> names();
    ptr<detail::Named> name_at(std::size_t index);

    std::uint64_t epoch_ = 0;  // Of the barrier.
};

}  // namespace feroce::gas
