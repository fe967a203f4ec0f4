// call_on: runs a function on another thread's loop and waits for its value on the own one.
//
//     auto counts = co_await call_on(there, here, [&] { return session.statistics(); });
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/signal.hpp"
#include "feroce/task.hpp"

namespace feroce::rdma {

// Fails only with ETIMEDOUT or ECANCELED; the function runs even then. What it throws is thrown to
// the caller, and its value ends on the thread of `here`. Awaited on that thread; both loops
// outlive the call. GCC 12 ends temporaries of an awaiting expression twice: a lambda that captures
// more than plain values must have a name and be moved in.
template <class Function>
Task<Result<std::invoke_result_t<Function>>> call_on(Loop& there, Loop& here, Function function) {
    using Value = std::invoke_result_t<Function>;
    struct Call {
        Call(Loop& loop, Function what) : work(std::move(what)), back(loop) {}
        Function work;
        std::optional<Value> value;
        std::exception_ptr thrown;
        Signal back;
    };
    // Its last holder is the message home, which ends there.
    auto call = std::make_shared<Call>(here, std::move(function));
    there.post([call, &here]() mutable {
        try {
            call->value.emplace(call->work());
        } catch (...) {
            call->thrown = std::current_exception();
        }
        here.post([held = std::move(call)] { held->back.notify_all(); });
    });
    // The value is there when the message is, and not looked at before.
    if (Result<> waited = co_await call->back.wait(); !waited) co_return waited.error();
    if (call->thrown) std::rethrow_exception(call->thrown);
    co_return *std::move(call->value);
}

}  // namespace feroce::rdma
