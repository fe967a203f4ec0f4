// LoopThread: a thread of ours that drives a loop, for callers that have none. It blocks all
// signals, so that those of the program reach the program's threads: Ctrl-C ends a wait of Python's
// main thread.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "feroce/loop.hpp"
#include "feroce/runtime.hpp"
#include "feroce/task.hpp"
#include "feroce/task_group.hpp"

namespace feroce::python {

class LoopThread {
    class Inner;

public:
    // Runs in the thread. It makes its loop with make_runtime(), and calls drive() when it is ready
    // for work.
    class Main {
    public:
        explicit Main(std::shared_ptr<Inner> inner) : inner_(std::move(inner)) {}
        // Its first wait after stop() ends with an exception, which drive() or the thread takes: so
        // what blocks the thread in a loop of its own ends too.
        std::unique_ptr<rdma::Runtime> make_runtime();
        // Until stop(). The tasks are ended before anything that they use.
        void drive(rdma::Loop& loop, rdma::TaskGroup& tasks);
        // Stops the thread, from any.
        std::function<void()> stopper() const;

    private:
        std::shared_ptr<Inner> inner_;
    };

    explicit LoopThread(std::function<void(Main&)> main);
    ~LoopThread();  // Stops it and waits for its end, unless it is the caller's own thread.
    LoopThread(const LoopThread&) = delete;
    LoopThread& operator=(const LoopThread&) = delete;

    // Any thread. False: it does not drive a loop, or not any more.
    bool post(std::function<void()> work) const;
    bool spawn(std::function<rdma::Task<void>(rdma::Loop& loop)> make) const;
    void stop() const;
    void join();  // After stop(): returns when it has ended, unless it is the caller's own thread.
    // Lets the last reference go in the thread. Later than its end: never.
    void drop(std::shared_ptr<void> last) const;

private:
    std::shared_ptr<Inner> inner_;
    std::thread thread_;
};

}  // namespace feroce::python
