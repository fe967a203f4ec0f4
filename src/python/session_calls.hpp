// A session that Python has open.
#pragma once

#include <memory>
#include <utility>

#include "feroce/rtrs/session.hpp"
#include "python/closable.hpp"
#include "python/home.hpp"

namespace feroce::python {

class OpenSession final : public Closable {
public:
    struct State {  // In the thread.
        State(rdma::Loop& loop, rtrs::Session opened) : busy(loop), session(std::move(opened)) {}
        Busy busy;
        rtrs::Session session;
    };

    OpenSession(std::shared_ptr<Home> home, std::shared_ptr<State> state)
        : home_(std::move(home)), state_(std::move(state)) {}
    const LoopThread& thread() const override { return home_->thread(); }
    const std::shared_ptr<State>& state() const { return state_; }
    rdma::Task<void> close(std::shared_ptr<Call> call) override {
        return close(std::move(call), state_);
    }

private:
    static rdma::Task<void> close(std::shared_ptr<Call> call, std::shared_ptr<State> state);

    std::shared_ptr<Home> home_;
    std::shared_ptr<State> state_;
};

}  // namespace feroce::python
