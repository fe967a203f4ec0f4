// Sessions for C: the client's end.
#include <cerrno>
#include <utility>

#include "feroce/rtrs/session.hpp"
#include "python/arguments.hpp"
#include "python/session_calls.hpp"
#include "python/surface.hpp"

namespace feroce::python {

namespace {

using rdma::Task;
using State = OpenSession::State;

Task<void> open_session(std::shared_ptr<Call> call, std::shared_ptr<Home> home, std::string name,
                        std::vector<rtrs::PathAddress> paths, rtrs::SessionOptions options) {
    // A client of its own: another session of the name is not the same one.
    rtrs::Client client(home->loop());
    auto opened = co_await client.open(std::move(name), std::move(paths), std::move(options));
    Outcome outcome(opened);
    if (opened) {
        auto state = std::make_unique<State>(home->loop(), *std::move(opened));
        outcome.made = std::make_shared<OpenSession>(home, Home::resident(home, std::move(state)));
    }
    call->finish(std::move(outcome));
}

rdma::Error too_large(std::uint64_t size, std::size_t limit) {
    return {EMSGSIZE, "a request carries at most " + std::to_string(limit) + " bytes, not " +
                          std::to_string(size)};
}

Task<void> read_session(std::shared_ptr<Call> call, std::shared_ptr<State> state, Bytes message,
                        std::uint64_t size) {
    const Busy::Use use(state->busy);
    if (state->busy.closed()) co_return fail(*call, Busy::closed_error());
    const std::size_t limit = state->session.max_io_size();
    if (size > limit) co_return fail(*call, too_large(size, limit));
    Bytes data(size);
    const auto moved =
        co_await state->session.read(message, rtrs::Segment(data)).with(state->busy.closing());
    Outcome outcome(moved);
    if (moved) {
        data.resize(*moved);
        outcome.data = std::move(data);
    }
    call->finish(std::move(outcome));
}

Task<void> write_session(std::shared_ptr<Call> call, std::shared_ptr<State> state, Bytes message,
                         Bytes data) {
    const Busy::Use use(state->busy);
    if (state->busy.closed()) co_return fail(*call, Busy::closed_error());
    const std::size_t limit = state->session.max_io_size();
    if (data.size() > limit) co_return fail(*call, too_large(data.size(), limit));
    const auto moved = co_await state->session.write(message, rtrs::ConstSegment(data))
                           .with(state->busy.closing());
    call->finish(Outcome(moved));
}

Task<void> add_path_to(std::shared_ptr<Call> call, std::shared_ptr<State> state,
                       std::vector<rtrs::PathAddress> paths) {
    if (paths.size() != 1)
        co_return fail(*call, rdma::Error(EINVAL, "a path is an address, or two"));
    const auto added = state->session.add_path(paths.front());
    Outcome outcome(added);
    if (added) outcome.value = *added;
    call->finish(std::move(outcome));
}

Task<void> look_at_session(std::shared_ptr<Call> call, std::shared_ptr<State> state) {
    Outcome outcome;
    const rtrs::Session& session = state->session;
    outcome.data = bytes_of(feroce_session_info{session.connected(), session.max_io_size(),
                                                session.queue_depth(), session.extended()});
    call->finish(std::move(outcome));
    co_return;
}

}  // namespace

// A server that does not answer is no error: it forgets the session by itself.
Task<void> OpenSession::close(std::shared_ptr<Call> call, std::shared_ptr<State> state) {
    Outcome outcome;
    if (!state->busy.closed()) {
        outcome = co_await state->busy.close();
        if (outcome.code == 0) static_cast<void>(co_await state->session.close());
    }
    call->finish(std::move(outcome));
}

}  // namespace feroce::python

using namespace feroce::python;

feroce_handle feroce_session_open(feroce_handle queue, int64_t timeout, const char* name,
                                  const char* paths, const feroce_session_options* options) {
    return begun(queue, [&]() -> feroce_handle {
        const auto home = Handles::instance().home();
        if (!home) return unknown_handle(queue);
        return begin_call(home->thread(), queue, timeout,
                          [home, called = text_of(name), ways = paths_of(paths),
                           given = options_of(*options)](std::shared_ptr<Call> call) {
                              return open_session(std::move(call), home, called, ways, given);
                          });
    });
}

feroce_handle feroce_session_read(feroce_handle queue, int64_t timeout, feroce_handle session,
                                  feroce_bytes message, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of<OpenSession>(
            queue, timeout, session,
            [text = copy_of(message), size](std::shared_ptr<Call> call, OpenSession& of) mutable {
                return read_session(std::move(call), of.state(), std::move(text), size);
            });
    });
}

feroce_handle feroce_session_write(feroce_handle queue, int64_t timeout, feroce_handle session,
                                   feroce_bytes message, feroce_bytes data) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of<OpenSession>(queue, timeout, session,
                                    [text = copy_of(message), bytes = copy_of(data)](
                                        std::shared_ptr<Call> call, OpenSession& of) mutable {
                                        return write_session(std::move(call), of.state(),
                                                             std::move(text), std::move(bytes));
                                    });
    });
}

feroce_handle feroce_session_add_path(feroce_handle queue, int64_t timeout, feroce_handle session,
                                      const char* path) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of<OpenSession>(
            queue, timeout, session,
            [ways = paths_of(path)](std::shared_ptr<Call> call, OpenSession& of) {
                return add_path_to(std::move(call), of.state(), ways);
            });
    });
}

feroce_handle feroce_session_look(feroce_handle queue, int64_t timeout, feroce_handle session) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of<OpenSession>(queue, timeout, session,
                                    [](std::shared_ptr<Call> call, OpenSession& of) {
                                        return look_at_session(std::move(call), of.state());
                                    });
    });
}
