// CallPool: a few threads that make blocking calls for a loop: calls of files where the kernel
// refuses an io_uring, and what io_uring has no call for. A disk that takes its time must not stop
// the loop: its heartbeats keep the paths of all clients up.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "block/file_call.hpp"
#include "feroce/loop.hpp"

namespace feroce::block {

class CallPool final : public CallRunner, public rdma::Source {
public:
    // The pool of this loop, made at the first call. Its threads begin when they are needed.
    static std::shared_ptr<CallPool> of(rdma::Loop& loop);

    explicit CallPool(rdma::Loop& loop);
    ~CallPool() override;

    void submit(BackendRequest& request) override;
    // `then` is called in the loop's thread with what `work` returned in another.
    void run(std::function<int()> work, std::function<void(int result)> then);

    bool poll() override;
    void arm() override {}
    int fd() const override { return event_fd_; }
    void take_events() override;

private:
    struct Job : rdma::ListNode {
        BackendRequest* request = nullptr;  // With `call`; or null, with the two others.
        FileCall call;
        std::function<int()> work;
        std::function<void(int)> then;
        int result = 0;
    };

    Job& take_job();
    void start(Job& job);
    void work();  // Of each thread.

    rdma::Loop& loop_;
    int event_fd_;
    std::deque<Job> jobs_;  // All there are. The loop's thread alone, as are free_ and threads_.
    rdma::List<Job> free_;
    std::vector<std::thread> threads_;
    // Set with release when a job was put into done_, so that poll() need not lock for nothing.
    std::atomic<bool> any_done_ = false;
    std::mutex mutex_;  // Guards what follows.
    std::condition_variable wake_;
    rdma::List<Job> waiting_;
    rdma::List<Job> done_;
    std::size_t idle_ = 0;
    bool over_ = false;
};

}  // namespace feroce::block
