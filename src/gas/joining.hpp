// Joining: how a cluster comes together. Node 0 listens at the seed address; the others connect to
// it, write where and what they are into its directory, and read that until it is complete. Then
// every thread of every node connects to every node at the same time, and all accept.
//
//   1. others -> node 0: a request with Hello; accepted with Welcome, or refused with Refusal.
//   2. WRITE of the own DirectoryEntry, its `ready` last; READs of the directory until all are.
//   3. per thread and node: a request with Hello, kind Lane.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "feroce/listener.hpp"
#include "feroce/task_group.hpp"
#include "gas/node_core.hpp"

namespace feroce::gas {

class Joining {
public:
    explicit Joining(Node::Core& core);
    Result<> run();  // Blocks.

private:
    rdma::Task<Result<>> meet();  // Steps 1 and 2.
    rdma::Task<Result<>> host();
    rdma::Task<Result<>> visit();
    Result<> prepare(const rdma::Address& local);
    detail::DirectoryEntry own_entry() const;
    rdma::Task<Result<rdma::Address>> find_seed();
    rdma::Task<Result<rdma::Connection>> reach_seed(rdma::Address address);
    rdma::Task<Result<>> exchange_directory(rdma::Connection& seed);
    bool directory_complete() const;

    rdma::Task<void> answer_all();
    bool may_come(std::uint16_t rank, std::uint64_t process);
    rdma::Task<void> welcome(rdma::ConnectionRequest request, std::uint16_t rank);
    rdma::Task<void> accept_lane(rdma::ConnectionRequest request);
    void answer_lanes();
    std::size_t expected_lanes() const;

    Result<> make_completions();
    rdma::Task<Result<>> connect_thread(std::size_t thread);
    rdma::Task<void> connect_lane(std::size_t thread, NodeId node);
    rdma::Task<Result<>> await_lanes();
    void fail(const Error& error);
    bool connects_to(std::size_t node) const;
    Error who_is_missing() const;

    Node::Core& core_;
    Instant deadline_;
    rdma::Signal changed_;  // Of accepted connections, or a failure.
    std::optional<rdma::Listener> listener_;
    std::vector<rdma::ConnectionRequest>
        early_;  // Lanes of nodes that knew before us that all are there.
    struct Visitor {
        std::optional<std::uint64_t> process;
        std::optional<rdma::Connection> connection;
    };
    std::vector<Visitor> visitors_;  // Node 0: those of step 1, by rank.
    bool connecting_ = false;        // Step 3.
    std::optional<Error> failure_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

}  // namespace feroce::gas
