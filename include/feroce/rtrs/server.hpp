// The server's end of sessions. Clients write a request (message and, for writes, data) into a
// chunk of the server's memory; the server calls the handler, which answers now or later, once. For
// a read the handler fills data() before it answers and the server pushes it into the client's
// memory.
//
//     rtrs::Server server = rtrs::Server::open(loop, {}, [](rtrs::ServerRequest& request) {
//         std::ranges::copy(lookup(request.message()), request.data().begin());
//         request.respond();
//     }).value();
//
// One that answers later keeps request.defer(), a Responder; a request that is not answered within
// ServerOptions::answer_within is ended.
//
// A handler that awaits is a coroutine; its result answers the request: how much of a read's data
// it has filled (the rest is cleared), or an error.
//
//     rtrs::Server::open(loop, {}, [&](rtrs::ServerRequest& request)
//                                      -> rdma::Task<rdma::Result<std::size_t>> {
//         co_return co_await backend.load(request.message(), request.data());
//     });
//
// Belongs to its loop's thread. With ServerOptions::workers sessions are served on the loops of
// other threads, the handler is called there, and only opening, ending and counting happen here. A
// request repeated by a client of ours after a path failed is not given to the handler again
// (docs/sessions.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/result.hpp"
#include "feroce/rtrs/options.hpp"
#include "feroce/rtrs/request.hpp"
#include "feroce/task.hpp"

namespace feroce::rtrs {

class Responder;
class ServerSession;

// A request in its chunk. Valid from the handler's call until respond().
class ServerRequest {
public:
    Direction direction() const { return direction_; }
    std::span<const std::byte> message() const { return message_; }
    std::span<std::byte> data() const { return data_; }
    const std::string& session_name() const;
    std::uint64_t session() const;  // No two sessions have the same, whatever their names.
    rdma::Loop& loop() const;       // Of the session: of the server, or one of its workers.

    // One of these, once, at any time, in the thread of loop(). 0, or an errno below 512 for the
    // client.
    void respond(int error = 0);
    // An errno and, for clients of ours, its sentence, of which 120 characters travel.
    void respond(const rdma::Error& error);
    // A read: only the first `filled` bytes of data() are the answer; a client of ours learns how
    // many. The rest is cleared.
    void respond_filled(std::size_t filled);
    // For a handler that answers later: the duty to answer, as a value that cannot be forgotten.
    Responder defer();

private:
    friend class Responder;
    friend class ServerSession;
    void drop();

    ServerSession* session_ = nullptr;
    std::uint16_t chunk_ = 0;
    Direction direction_ = Direction::Write;
    std::span<const std::byte> message_;
    std::span<std::byte> data_;
};

// The duty to answer a request. One that is destroyed without an answer answers EIO and says so on
// stderr: its handler has forgotten the client. In the thread of the request's loop().
class [[nodiscard]] Responder {
public:
    explicit Responder(ServerRequest& request) : request_(&request) {}
    Responder(Responder&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
    Responder& operator=(Responder&& other) noexcept {
        std::swap(request_, other.request_);
        return *this;
    }
    ~Responder();

    ServerRequest& request() const { return *request_; }  // Until respond().
    void respond(int error = 0) { std::exchange(request_, nullptr)->respond(error); }
    void respond(const rdma::Error& error) { std::exchange(request_, nullptr)->respond(error); }
    void respond_filled(std::size_t filled) {
        std::exchange(request_, nullptr)->respond_filled(filled);
    }

private:
    ServerRequest* request_;
};

// A handler that throws fails its request with EIO, unless it had answered, and no other; it must
// not have kept the request. The exception goes to the session's loop: see Loop::poll.
using RequestHandler = std::function<void(ServerRequest&)>;
using HandlerTask = rdma::Task<rdma::Result<std::size_t>>;
using TaskHandler = std::function<HandlerTask(ServerRequest&)>;
template <class Handler>
concept AwaitingHandler =
    std::is_same_v<std::invoke_result_t<Handler&, ServerRequest&>, HandlerTask>;

struct ServerStatistics {
    std::size_t sessions = 0;
    std::size_t paths = 0;
    std::uint64_t requests = 0;  // Given to the handler.
    std::uint64_t replays = 0;   // Repetitions that were only answered again,
    std::uint64_t joins = 0;     // or that found the first still at work.
    std::uint64_t stale = 0;     // Late duplicates that nobody waited for.
    std::uint64_t fences = 0;
    std::uint64_t overdue = 0;  // Requests that a handler kept beyond answer_within,
    std::uint64_t dropped = 0;  // or whose Responder was destroyed without an answer.
    std::uint64_t paths_closed = 0;
    std::uint64_t refused = 0;  // Connections.
    std::string last_refusal;   // Why a connection was refused or a path closed last.
};

class Server {
public:
    static Result<Server, rdma::Error> open(rdma::Loop& loop, ServerOptions options,
                                            RequestHandler handler);
    // The handler's tasks belong to the loop of their session and may outlive the server. One that
    // is destroyed before its end answers ECANCELED.
    template <AwaitingHandler Handler>
    static Result<Server, rdma::Error> open(rdma::Loop& loop, ServerOptions options,
                                            Handler handler) {
        return open_awaiting(loop, std::move(options), TaskHandler(std::move(handler)));
    }
    Server(Server&&) noexcept;
    Server& operator=(Server&&) noexcept;
    // Closes all paths. Requests whose handler has not answered yet may still do so.
    ~Server();

    std::uint16_t port() const;
    ServerStatistics statistics() const;

private:
    class State;
    static Result<Server, rdma::Error> open_awaiting(rdma::Loop& loop, ServerOptions options,
                                                     TaskHandler handler);
    explicit Server(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
};

}  // namespace feroce::rtrs
