// CallPool: a few threads that make blocking calls for a loop: calls of files where the kernel
// refuses an io_uring, and what io_uring has no call for. A disk that takes its time must not stop
// the loop: its heartbeats keep the paths of all clients up. A dead device must not stop the others
// either: each device has one thread for itself, and gets only a part of those that all share. A
// call of which nobody knows the device, such as to open a file, counts as one of a device of its
// own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "block/file_call.hpp"
#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/signal.hpp"
#include "feroce/task.hpp"

namespace feroce::block {

// Whose calls they are, and which device could keep them from returning.
struct CallOwner {
    const void* id = nullptr;
    DeviceId device{};
    bool alone = false;  // Its device is not known; every call is taken for one of another device.
};

class CallPool final : public CallRunner,
                       public rdma::Source,
                       public std::enable_shared_from_this<CallPool> {
public:
    // The pool of this loop, made at the first call. Its threads begin when they are needed.
    static std::shared_ptr<CallPool> of(rdma::Loop& loop);

    explicit CallPool(rdma::Loop& loop);
    // Waits for calls that are being made. There are none of call(): they hold a pool of of().
    ~CallPool() override;

    void submit(BackendRequest& request) override;
    // `then` is called in the loop's thread with what `work` returned in another.
    void run(const CallOwner& owner, std::function<int()> work,
             std::function<void(int result)> then);
    // The function's value, or what it throws, for a coroutine. Fails only with ETIMEDOUT or
    // ECANCELED; the function runs even then, and its value ends in the loop's thread. The call
    // holds a pool of of() until then: to give up a call waits for nothing. If the loop is
    // destroyed first, pool and value stay until the process ends. For a lambda with captures see
    // call_on (feroce/elsewhere.hpp).
    template <class Function>
    rdma::Task<rdma::Result<std::invoke_result_t<Function>>> call(CallOwner owner,
                                                                  Function function);

    bool poll() override;
    void arm() override {}
    int fd() const override { return event_fd_; }
    void take_events() override;

    // Threads beside the one that each device has for itself.
    static constexpr std::size_t kShared = 16;
    // The most calls at a time: two disks on one device leave shared threads to the other devices,
    // and one disk leaves some to the others on its device.
    static constexpr std::size_t kOfOneDevice = 12;
    static constexpr std::size_t kOfOneOwner = 8;
    // Of calls whose device is not known. Further ones wait for the end of one of these.
    static constexpr std::size_t kAlone = 64;

private:
    struct Job;
    struct Device;
    // The calls of one owner. In wanting_ while any of them wait.
    struct Queue : rdma::ListNode {
        Device* device = nullptr;
        rdma::List<Job> waiting;
        std::size_t running = 0;
    };
    struct Device {
        std::map<const void*, Queue> queues;
        std::size_t running = 0;  // Of all queues.
        bool alone = false;       // For one call, whose device is not known.
    };
    struct Job : rdma::ListNode {
        Queue* queue = nullptr;
        BackendRequest* request = nullptr;  // With `call`; or null, with the two others.
        FileCall call;
        std::function<int()> work;
        std::function<void(int)> then;
        int result = 0;

        int perform() const { return request != nullptr ? call.perform() : work(); }
    };

    Job& take_job(CallOwner owner);
    void start(Job& job);
    void add_thread();
    void work();  // Of each thread.
    // With the mutex.
    Queue& queue_of(const CallOwner& owner);
    void forget_idle();
    bool may_begin(const Queue& queue) const;
    Job* begin_next();  // Null: nothing may begin.
    void end(Job& job);

    rdma::Loop& loop_;
    int event_fd_;
    std::deque<Job> jobs_;  // All there are. The loop's thread alone, as are free_ and threads_.
    rdma::List<Job> free_;
    std::vector<std::thread> threads_;
    std::uint64_t unknown_devices_ = 0;  // So many were told apart.
    // Set with release when a job was put into done_, so that poll() need not lock for nothing.
    std::atomic<bool> any_done_ = false;
    std::mutex mutex_;  // Guards what follows.
    std::condition_variable wake_;
    std::map<DeviceId, Device> devices_;
    rdma::List<Queue> wanting_;
    rdma::List<Job> done_;
    std::size_t waiting_ = 0;  // In all queues.
    std::size_t shared_ = 0;   // Calls being made beside the first of each device.
    std::size_t alone_ = 0;    // Calls being made whose device is not known.
    std::size_t idle_ = 0;
    bool over_ = false;
};

template <class Function>
rdma::Task<rdma::Result<std::invoke_result_t<Function>>> CallPool::call(CallOwner owner,
                                                                        Function function) {
    using Value = std::invoke_result_t<Function>;
    struct Call {
        Call(rdma::Loop& loop, Function what) : work(std::move(what)), ended(loop) {}
        Function work;
        std::optional<Value> value;
        std::exception_ptr thrown;
        bool done = false;
        rdma::Signal ended;
    };
    // The job has it, too, until the loop hears of its end.
    const auto call = std::make_shared<Call>(loop_, std::move(function));
    const auto work = [held = call.get()] {
        try {
            held->value.emplace(held->work());
        } catch (...) {
            held->thrown = std::current_exception();
        }
        return 0;
    };
    run(owner, work, [call, self = weak_from_this().lock()](int) {
        call->done = true;
        call->ended.notify_all();
    });
    while (!call->done)
        if (rdma::Result<> waited = co_await call->ended.wait(); !waited) co_return waited.error();
    if (call->thrown) std::rethrow_exception(call->thrown);
    co_return *std::move(call->value);
}

}  // namespace feroce::block
