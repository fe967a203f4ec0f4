// See call_pool.hpp.
#include "block/call_pool.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <utility>

#include "base/assert.hpp"

namespace feroce::block {

std::shared_ptr<CallPool> CallPool::of(rdma::Loop& loop) {
    // A loop belongs to one thread, and so do its back ends.
    thread_local std::map<rdma::Loop*, std::weak_ptr<CallPool>> pools;
    std::erase_if(pools, [](const auto& entry) { return entry.second.expired(); });
    // A call that never returned may hold the pool of a loop that was destroyed at this address.
    if (auto pool = pools[&loop].lock(); pool && loop.has(*pool)) return pool;
    auto pool = std::make_shared<CallPool>(loop);
    pools[&loop] = pool;
    return pool;
}

CallPool::CallPool(rdma::Loop& loop)
    : loop_(loop), event_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    ASSERT(event_fd_ >= 0);
    loop_.attach(*this);
}

CallPool::~CallPool() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    loop_.detach(*this);
    ::close(event_fd_);
}

// Owners, and devices, that may be gone.
void CallPool::forget_idle() {
    for (auto& [id, device] : devices_)
        std::erase_if(device.queues, [](const auto& entry) {
            return entry.second.running == 0 && entry.second.waiting.empty();
        });
    std::erase_if(devices_, [](const auto& entry) { return entry.second.queues.empty(); });
}

CallPool::Queue& CallPool::queue_of(const CallOwner& owner) {
    if (const auto device = devices_.find(owner.device); device != devices_.end())
        if (const auto queue = device->second.queues.find(owner.id);
            queue != device->second.queues.end())
            return queue->second;
    forget_idle();
    Device& device = devices_[owner.device];
    Queue& queue = device.queues[owner.id];
    queue.device = &device;
    return queue;
}

CallPool::Job& CallPool::take_job(CallOwner owner) {
    constexpr std::uint64_t kUnknown = std::uint64_t{1} << 63;  // No number of the kernel has it.
    if (owner.alone) owner.device = DeviceId{kUnknown | unknown_devices_++};
    Queue* queue = nullptr;
    {
        const std::lock_guard lock(mutex_);
        queue = &queue_of(owner);
        queue->device->alone = owner.alone;
    }
    Job* const old = free_.pop_front();
    Job& job = old != nullptr ? *old : jobs_.emplace_back();
    job.queue = queue;
    return job;
}

void CallPool::submit(BackendRequest& request) {
    const FileCaller& caller = caller_of(request);
    Job& job = take_job({&caller, caller.device()});
    job.request = &request;
    job.call = caller.next_call(request);
    start(job);
}

void CallPool::run(const CallOwner& owner, std::function<int()> what,
                   std::function<void(int)> then) {
    Job& job = take_job(owner);
    job.request = nullptr;
    job.work = std::move(what);
    job.then = std::move(then);
    start(job);
}

bool CallPool::may_begin(const Queue& queue) const {
    if (queue.device->alone) return alone_ < kAlone;
    if (queue.running >= kOfOneOwner) return false;
    const std::size_t of_device = queue.device->running;
    return of_device == 0 || (of_device < kOfOneDevice && shared_ < kShared);
}

// Of the queue that has waited longest and may go on.
CallPool::Job* CallPool::begin_next() {
    rdma::List<Queue> passed;
    Queue* queue = wanting_.pop_front();
    for (; queue != nullptr && !may_begin(*queue); queue = wanting_.pop_front())
        passed.push_back(*queue);
    while (Queue* const before = passed.pop_back()) wanting_.push_front(*before);
    if (queue == nullptr) return nullptr;
    Job* const job = queue->waiting.pop_front();
    if (!queue->waiting.empty()) wanting_.push_back(*queue);
    --waiting_;
    ++queue->running;
    if (queue->device->running++ > 0) ++shared_;
    if (queue->device->alone) ++alone_;
    return job;
}

void CallPool::end(Job& job) {
    --job.queue->running;
    if (--job.queue->device->running > 0) --shared_;
    if (job.queue->device->alone) --alone_;
    done_.push_back(job);
    any_done_.store(true, std::memory_order_release);
    (void)!::eventfd_write(event_fd_, 1);
}

void CallPool::start(Job& job) {
    bool more = false;
    {
        const std::lock_guard lock(mutex_);
        Queue& queue = *job.queue;
        queue.waiting.push_back(job);
        ++waiting_;
        if (!queue.linked()) wanting_.push_back(queue);
        // With so many there is one for every call that may begin. A thread that was woken still
        // counts as idle; it takes one.
        const std::size_t most = kShared + devices_.size();
        more = may_begin(queue) && waiting_ > idle_ && threads_.size() < most;
    }
    wake_.notify_one();
    if (more) add_thread();
}

void CallPool::add_thread() {
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        threads_.emplace_back([this] { work(); });
    } catch (const std::exception&) {
        // The limit of threads, or of memory. Those that there are do it; without any this one
        // has to.
        if (threads_.empty()) {
            const std::lock_guard lock(mutex_);
            while (Job* const next = begin_next()) {
                next->result = next->perform();
                end(*next);
            }
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void CallPool::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        Job* const job = begin_next();
        if (job == nullptr) {
            // What waits still has threads at work, which will do it.
            if (over_) return;
            ++idle_;
            wake_.wait(lock);
            --idle_;
            continue;
        }
        lock.unlock();
        job->result = job->perform();
        lock.lock();
        end(*job);
    }
}

bool CallPool::poll() {
    if (!any_done_.load(std::memory_order_acquire)) return false;
    const auto self = weak_from_this().lock();  // What is told of its end may be the last holder.
    rdma::List<Job> done;
    {
        const std::lock_guard lock(mutex_);
        any_done_.store(false, std::memory_order_relaxed);
        while (Job* const job = done_.pop_front()) done.push_back(*job);
    }
    while (Job* const job = done.pop_front()) {
        BackendRequest* const request = job->request;
        const int result = job->result;
        const auto then = std::exchange(job->then, {});
        job->work = {};
        free_.push_back(*job);
        if (request != nullptr)
            caller_of(*request).called(*request, result);
        else
            then(result);
    }
    return true;
}

void CallPool::take_events() {
    eventfd_t events = 0;
    while (::eventfd_read(event_fd_, &events) == 0) continue;
}

}  // namespace feroce::block
