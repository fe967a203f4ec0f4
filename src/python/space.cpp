#include "python/space.hpp"

#include <algorithm>
#include <cerrno>
#include <stop_token>

namespace feroce::python {

namespace {

// A place in the line, until it is destroyed.
class Turn {
public:
    Turn(Space::State& state, std::uint64_t ticket) : state_(state), ticket_(ticket) {
        state_.line.push_back(ticket);
    }
    ~Turn() {
        std::erase(state_.line, ticket_);
        state_.moved_on.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    bool has_come() const { return state_.line.front() == ticket_; }

private:
    Space::State& state_;
    std::uint64_t ticket_;
};

rdma::Error left_error() {
    return {EBADF, "this node has left the address space"};
}

rdma::Result<gas::Node> join_node(gas::NodeOptions options) {
    try {
        return gas::Node::join(std::move(options));
    } catch (const std::exception&) {
        return error_of(std::current_exception());
    }
}

}  // namespace

void Space::join(const std::shared_ptr<Call>& call, const gas::NodeOptions& options) {
    auto space = std::make_shared<Space>();
    // It may begin before its owner knows it: what it needs of that comes by mail. The thread keeps
    // neither the space nor the call, which has the space once it is done: else it never ended.
    // `call = call`: a plain copy of a const reference would be const, and be copied again.
    auto main = [space, call = call, options = options](LoopThread::Main& self) mutable {
        run(self, std::move(space), std::move(call), std::move(options));
    };
    space->thread_ = std::make_unique<LoopThread>(std::move(main));
}

void Space::run(LoopThread::Main& main, std::shared_ptr<Space> self, std::shared_ptr<Call> call,
                gas::NodeOptions options) {
    auto duty = std::make_shared<const Duty>(std::move(call));
    options.runtime = [&main] { return main.make_runtime(); };
    const std::stop_callback given_up(duty->call().stop(), main.stopper());
    auto joined = join_node(std::move(options));
    if (!joined) return fail(duty->call(), joined.error());
    State state(*std::move(joined));
    self->state_ = &state;
    Outcome outcome;
    outcome.value = static_cast<std::uint64_t>(state.node.id()) << 16 | state.node.size();
    outcome.made = std::move(self);
    state.node.loop().post([told = std::move(outcome), owed = std::move(duty)]() mutable {
        owed->call().finish(std::move(told));
    });
    main.drive(state.node.loop(), state.tasks);
}

rdma::Task<void> Space::alone(std::shared_ptr<Call> call, State& state, Work work) {
    const Turn turn(state, call->handle());
    while (!turn.has_come())
        if (const auto waited = co_await state.moved_on.wait(); !waited)
            co_return fail(*call, waited.error());
    if (state.left) co_return fail(*call, left_error());
    call->finish(work(state));
}

rdma::Task<void> Space::refuse(std::shared_ptr<Call> call) {
    fail(*call, left_error());
    co_return;
}

rdma::Task<void> Space::close(std::shared_ptr<Call> call) {
    return alone(std::move(call), state(), [](State& state) -> Outcome {
        state.left = true;
        return state.node.leave();
    });
}

std::uint64_t call_alone(std::uint64_t queue, std::int64_t timeout, std::uint64_t space,
                         Space::Work work) {
    return call_of<Space>(queue, timeout, space,
                          [what = std::move(work)](std::shared_ptr<Call> call, Space& of) {
                              return Space::alone(std::move(call), of.state(), what);
                          });
}

}  // namespace feroce::python
