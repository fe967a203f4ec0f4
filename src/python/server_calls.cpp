// The server's end of sessions for C: requests wait at a desk until a thread of Python takes them.
// The loop never waits for Python.
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "feroce/rtrs/server.hpp"
#include "python/arguments.hpp"
#include "python/closable.hpp"
#include "python/home.hpp"
#include "python/surface.hpp"

namespace feroce::python {

namespace {

using rdma::Task;

// A request that Python has, or will have. What it looks at is a copy; the chunk is touched in the
// thread alone.
class Asked final : public Object {
public:
    // In the thread.
    Asked(std::shared_ptr<Home> home, rtrs::ServerRequest& request)
        : is_read(request.direction() == rtrs::Direction::Read),
          message(request.message().begin(), request.message().end()),
          size(request.data().size()),
          session(request.session_name()),
          home_(std::move(home)),
          responder_(Home::resident(home_, std::make_unique<rtrs::Responder>(request.defer()))) {
        if (!is_read) data.assign(request.data().begin(), request.data().end());
    }

    // Once; false if it was answered already.
    bool answer(int code, std::string why, Bytes with) {
        if (answered_.exchange(true)) return false;
        home_->thread().post(
            [responder = responder_, code, text = std::move(why), bytes = std::move(with)] {
                answer_now(*responder, code, text, bytes);
            });
        return true;
    }

    const bool is_read;
    const Bytes message;
    Bytes data;  // Of a write.
    const std::size_t size;
    const std::string session;

private:
    static void answer_now(rtrs::Responder& responder, int code, const std::string& why,
                           const Bytes& with) {
        if (code != 0) return responder.respond(rdma::Error(code, why));
        const std::span<std::byte> room = responder.request().data();
        if (responder.request().direction() == rtrs::Direction::Write) return responder.respond();
        std::copy_n(with.begin(), std::min(with.size(), room.size()), room.begin());
        responder.respond_filled(std::min(with.size(), room.size()));
    }

    const std::shared_ptr<Home> home_;
    // One that is not answered answers EIO when it ends.
    const std::shared_ptr<rtrs::Responder> responder_;
    std::atomic<bool> answered_ = false;
};

// Where requests wait. Any thread.
class Desk {
public:
    void put(std::shared_ptr<Asked> request) {
        const std::lock_guard lock(mutex_);
        if (closed_) return void(request->answer(ECANCELED, "the server was closed", {}));
        waiting_.push_back(std::move(request));
        came_.notify_one();
    }
    std::shared_ptr<Asked> take(std::chrono::milliseconds patience, bool& closed) {
        std::unique_lock lock(mutex_);
        came_.wait_for(lock, patience, [this] { return closed_ || !waiting_.empty(); });
        closed = closed_;
        if (waiting_.empty()) return nullptr;
        std::shared_ptr<Asked> first = std::move(waiting_.front());
        waiting_.pop_front();
        return first;
    }
    void close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        for (const auto& request : std::exchange(waiting_, {}))
            request->answer(ECANCELED, "the server was closed", {});
        came_.notify_all();
    }

private:
    std::mutex mutex_;  // Guards all below.
    std::condition_variable came_;
    std::deque<std::shared_ptr<Asked>> waiting_;
    bool closed_ = false;
};

class OpenServer final : public Closable {
public:
    using State = std::optional<rtrs::Server>;  // In the thread; none: closed.

    OpenServer(std::shared_ptr<Home> home, std::shared_ptr<State> state, std::shared_ptr<Desk> desk)
        : home_(std::move(home)), state_(std::move(state)), desk_(std::move(desk)) {}
    ~OpenServer() override { desk_->close(); }
    const LoopThread& thread() const override { return home_->thread(); }
    const std::shared_ptr<Desk>& desk() const { return desk_; }
    Task<void> close(std::shared_ptr<Call> call) override {
        return close_server(std::move(call), state_, desk_);
    }

private:
    static Task<void> close_server(std::shared_ptr<Call> call, std::shared_ptr<State> state,
                                   std::shared_ptr<Desk> desk) {
        desk->close();
        state->reset();
        call->finish({});
        co_return;
    }

    std::shared_ptr<Home> home_;
    std::shared_ptr<State> state_;
    std::shared_ptr<Desk> desk_;
};

Task<void> open_server(std::shared_ptr<Call> call, std::shared_ptr<Home> home,
                       rtrs::ServerOptions options) {
    auto desk = std::make_shared<Desk>();
    // The home outlives the server, and must not be kept by it.
    const std::weak_ptr<Home> owner = home;
    const auto handler = [owner, desk](rtrs::ServerRequest& request) {
        if (const auto lives = owner.lock())
            desk->put(std::make_shared<Asked>(lives, request));
        else
            request.respond(ECANCELED);
    };
    auto opened =
        rtrs::Server::open(home->loop(), std::move(options), rtrs::RequestHandler(handler));
    Outcome outcome(opened);
    if (opened) {
        outcome.value = opened->port();
        auto state = std::make_unique<OpenServer::State>(*std::move(opened));
        outcome.made =
            std::make_shared<OpenServer>(home, Home::resident(home, std::move(state)), desk);
    }
    call->finish(std::move(outcome));
    co_return;
}

}  // namespace

}  // namespace feroce::python

using namespace feroce::python;

feroce_handle feroce_server_open(feroce_handle queue, int64_t timeout,
                                 const feroce_server_options* options) {
    return begun(queue, [&]() -> feroce_handle {
        const auto home = Handles::instance().home();
        if (!home) return unknown_handle(queue);
        feroce::rtrs::ServerOptions given;
        given.address = text_of(options->address);
        given.port = options->port;
        given.queue_depth = options->queue_depth;
        given.chunk_size = options->chunk_size;
        return begin_call(home->thread(), queue, timeout,
                          [home, given](std::shared_ptr<Call> call) {
                              return open_server(std::move(call), home, given);
                          });
    });
}

feroce_handle feroce_server_take(feroce_handle server, int32_t milliseconds, feroce_request* out,
                                 int32_t* closed) {
    return answered(feroce_handle{0}, [&] {
        std::shared_ptr<Desk> desk;
        if (const auto found = Handles::instance().find<OpenServer>(server)) desk = found->desk();
        bool over = true;
        std::shared_ptr<Asked> request;
        if (desk) request = desk->take(std::chrono::milliseconds(milliseconds), over);
        *closed = over ? 1 : 0;
        if (!request) return feroce_handle{0};
        *out = {};
        out->is_read = request->is_read ? 1 : 0;
        out->message = {request->message.data(), request->message.size()};
        out->data = {request->is_read ? nullptr : request->data.data(), request->size};
        out->session = request->session.c_str();
        return Handles::instance().add(request);
    });
}

void feroce_server_stop(feroce_handle server) {
    answered(0, [&] {
        if (const auto found = Handles::instance().find<OpenServer>(server)) found->desk()->close();
        return 0;
    });
}

int feroce_server_answer(feroce_handle request, int32_t code, const char* why, feroce_bytes data) {
    return answered(ENOMEM, [&] {
        const auto found = Handles::instance().find<Asked>(request);
        if (!found) return EBADF;
        return found->answer(code, text_of(why), copy_of(data)) ? 0 : EALREADY;
    });
}
