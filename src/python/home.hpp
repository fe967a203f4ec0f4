// Home: the thread of all sessions, disks and servers of the process, and what they have in common.
#pragma once

#include <future>
#include <memory>
#include <stop_token>
#include <utility>

#include "feroce/block/client.hpp"
#include "feroce/signal.hpp"
#include "python/call.hpp"
#include "python/disk_sessions.hpp"
#include "python/loop_thread.hpp"

namespace feroce::python {

class Home {
public:
    static std::shared_ptr<Home> start();  // Throws what its thread throws at its beginning.

    const LoopThread& thread() const { return thread_; }
    void end() {
        thread_.stop();
        thread_.join();
    }
    rdma::Loop& loop() const { return *loop_; }               // In the thread.
    block::DiskClient& disks() const { return *disks_; }      // In the thread.
    DiskSessions& disk_sessions() { return disk_sessions_; }  // In the thread.

    // What lives in the thread: it ends there, whichever thread lets it go last.
    template <class T>
    static std::shared_ptr<T> resident(const std::shared_ptr<Home>& home, std::unique_ptr<T> made) {
        return {made.release(),
                [home](T* ended) { home->thread().drop(std::shared_ptr<T>(ended)); }};
    }

private:
    using Ready = std::promise<void>;
    Home() : ready_(begun_.get_future()), thread_([this](LoopThread::Main& main) { run(main); }) {}
    void run(LoopThread::Main& main);
    void serve(LoopThread::Main& main);

    Ready begun_;
    bool told_ = false;  // That it has begun. The thread's own.
    std::future<void> ready_;
    rdma::Loop* loop_ = nullptr;  // Written before start() returns.
    block::DiskClient* disks_ = nullptr;
    DiskSessions disk_sessions_;
    LoopThread thread_;  // Ends first: it uses the rest.
};

// What can be closed while calls use it. In the thread.
class Busy {
public:
    explicit Busy(rdma::Loop& loop) : idle_(loop) {}

    // A call that uses it.
    class Use {
    public:
        explicit Use(Busy& of) : of_(of) { ++of_.users_; }
        ~Use() {
            if (--of_.users_ == 0) of_.idle_.notify_all();
        }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

    private:
        Busy& of_;
    };

    bool closed() const { return closed_; }
    std::stop_token closing() const { return closing_.get_token(); }
    // Lets nothing more in, and ends what is in.
    rdma::Task<rdma::Result<>> close() {
        closed_ = true;
        closing_.request_stop();
        while (users_ > 0)
            if (auto waited = co_await idle_.wait(); !waited) co_return waited;
        co_return rdma::Result<>{};
    }
    static rdma::Error closed_error() {
        return {EBADF, "it was closed by another part of the program"};
    }

private:
    std::size_t users_ = 0;
    rdma::Signal idle_;
    std::stop_source closing_;
    bool closed_ = false;
};

// Begins a call in the thread; `make` gives its work. Its limits are the timeout and
// Call::cancel().
std::uint64_t begin_call(const LoopThread& thread, std::uint64_t queue, std::int64_t timeout,
                         std::function<rdma::Task<void>(std::shared_ptr<Call>)> make);
// A call that has failed already.
std::uint64_t failed_call(std::uint64_t queue, const rdma::Error& error);
std::uint64_t unknown_handle(std::uint64_t queue);

// Begins a call on the object of that handle; EBADF if there is none.
template <class T, class Make>
std::uint64_t call_of(std::uint64_t queue, std::int64_t timeout, std::uint64_t handle, Make make) {
    const std::shared_ptr<T> object = Handles::instance().find<T>(handle);
    if (!object) return unknown_handle(queue);
    return begin_call(object->thread(), queue, timeout,
                      [object, begin = std::move(make)](std::shared_ptr<Call> call) mutable {
                          return begin(std::move(call), *object);
                      });
}

}  // namespace feroce::python
