// Space: this process as a node of an address space, in a thread of its own. Operations are tasks
// of that thread; names and barriers, which block it, go one after the other, and tasks go on
// meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "feroce/gas/node.hpp"
#include "feroce/signal.hpp"
#include "feroce/task_group.hpp"
#include "python/closable.hpp"
#include "python/home.hpp"

namespace feroce::python {

class Space final : public Closable {
public:
    // In the thread. Tasks end first.
    struct State {
        explicit State(gas::Node joined)
            : node(std::move(joined)), moved_on(node.loop()), tasks(node.loop()) {}

        gas::Node node;
        bool left = false;
        std::deque<std::uint64_t> line;  // Calls that block, the first of them now.
        rdma::Signal moved_on;           // The line has.
        rdma::TaskGroup tasks;
    };
    using Work = std::function<Outcome(State&)>;

    // The call is done when the node has joined; given up, it joins no longer.
    static void join(const std::shared_ptr<Call>& call, const gas::NodeOptions& options);

    const LoopThread& thread() const override { return *thread_; }
    State& state() const { return *state_; }  // In the thread.
    // Leaves the cluster. One that is released without it is lost for the others.
    rdma::Task<void> close(std::shared_ptr<Call> call) override;

    // What is left of a call after leave().
    static rdma::Task<void> refuse(std::shared_ptr<Call> call);
    // Does what blocks the thread, when its turn has come.
    static rdma::Task<void> alone(std::shared_ptr<Call> call, State& state, Work work);

private:
    static void run(LoopThread::Main& main, std::shared_ptr<Space> self, std::shared_ptr<Call> call,
                    gas::NodeOptions options);

    State* state_ = nullptr;
    std::unique_ptr<LoopThread> thread_;
};

// Begins such a call.
std::uint64_t call_alone(std::uint64_t queue, std::int64_t timeout, std::uint64_t space,
                         Space::Work work);

}  // namespace feroce::python
