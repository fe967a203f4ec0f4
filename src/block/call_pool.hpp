// CallPool: a few threads that make blocking calls for a loop: calls of files where the kernel
// refuses an io_uring, and what io_uring has no call for. A disk that takes its time must not stop
// the loop: its heartbeats keep the paths of all clients up. A dead one must not stop the others
// either: the calls of one owner get at most half of the threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
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
    // `then` is called in the loop's thread with what `work` returned in another. `owner`: whose
    // call it is; of a request's it is the request's owner.
    void run(const void* owner, std::function<int()> work, std::function<void(int result)> then);

    bool poll() override;
    void arm() override {}
    int fd() const override { return event_fd_; }
    void take_events() override;

    static constexpr std::size_t kThreads = 16;
    static constexpr std::size_t kOfOneOwner = kThreads / 2;  // A disk does several at a time.

private:
    struct Job;
    // The calls of one owner. In ready_ while one of them may begin.
    struct Line : rdma::ListNode {
        rdma::List<Job> waiting;
        std::size_t running = 0;
    };
    struct Job : rdma::ListNode {
        Line* line = nullptr;
        BackendRequest* request = nullptr;  // With `call`; or null, with the two others.
        FileCall call;
        std::function<int()> work;
        std::function<void(int)> then;
        int result = 0;

        int perform() const { return request != nullptr ? call.perform() : work(); }
    };

    Job& take_job(const void* owner);
    void start(Job& job);
    void work();  // Of each thread.
    // With the mutex.
    Line& line_of(const void* owner);
    void make_ready(Line& line);
    Job* begin_next();  // Null: nothing may begin.
    void end(Job& job);

    rdma::Loop& loop_;
    int event_fd_;
    std::deque<Job> jobs_;  // All there are. The loop's thread alone, as are free_ and threads_.
    rdma::List<Job> free_;
    std::vector<std::thread> threads_;
    // Set with release when a job was put into done_, so that poll() need not lock for nothing.
    std::atomic<bool> any_done_ = false;
    std::mutex mutex_;  // Guards what follows.
    std::condition_variable wake_;
    std::map<const void*, Line> lines_;
    rdma::List<Line> ready_;
    rdma::List<Job> done_;
    std::size_t waiting_ = 0;  // In all lines.
    std::size_t idle_ = 0;
    bool over_ = false;
};

}  // namespace feroce::block
