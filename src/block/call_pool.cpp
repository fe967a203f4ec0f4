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
    if (auto pool = pools[&loop].lock()) return pool;
    auto pool = std::make_shared<CallPool>(loop);
    pools[&loop] = pool;
    return pool;
}

CallPool::CallPool(rdma::Loop& loop)
    : loop_(loop), event_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    ASSERT(event_fd_ >= 0);
    threads_.reserve(kThreads);
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

CallPool::Line& CallPool::line_of(const void* owner) {
    if (const auto found = lines_.find(owner); found != lines_.end()) return found->second;
    // Those of owners that may be gone.
    std::erase_if(lines_, [](const auto& entry) {
        return entry.second.running == 0 && entry.second.waiting.empty();
    });
    return lines_[owner];
}

CallPool::Job& CallPool::take_job(const void* owner) {
    Line* line = nullptr;
    {
        const std::lock_guard lock(mutex_);
        line = &line_of(owner);
    }
    Job* const old = free_.pop_front();
    Job& job = old != nullptr ? *old : jobs_.emplace_back();
    job.line = line;
    return job;
}

void CallPool::submit(BackendRequest& request) {
    Job& job = take_job(request.owner);
    job.request = &request;
    job.call = caller_of(request).next_call(request);
    start(job);
}

void CallPool::run(const void* owner, std::function<int()> what, std::function<void(int)> then) {
    Job& job = take_job(owner);
    job.request = nullptr;
    job.work = std::move(what);
    job.then = std::move(then);
    start(job);
}

void CallPool::make_ready(Line& line) {
    if (line.linked() || line.waiting.empty() || line.running >= kOfOneOwner) return;
    ready_.push_back(line);
}

// Of each line in turn.
CallPool::Job* CallPool::begin_next() {
    Line* const line = ready_.pop_front();
    if (line == nullptr) return nullptr;
    Job* const job = line->waiting.pop_front();
    ++line->running;
    --waiting_;
    make_ready(*line);
    return job;
}

void CallPool::end(Job& job) {
    --job.line->running;
    make_ready(*job.line);
    done_.push_back(job);
    any_done_.store(true, std::memory_order_release);
    (void)!::eventfd_write(event_fd_, 1);
}

void CallPool::start(Job& job) {
    bool more = false;
    {
        const std::lock_guard lock(mutex_);
        job.line->waiting.push_back(job);
        ++waiting_;
        make_ready(*job.line);
        // A thread that was woken still counts as idle; it takes one.
        more = job.line->linked() && waiting_ > idle_ && threads_.size() < kThreads;
    }
    wake_.notify_one();
    if (!more) return;
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
