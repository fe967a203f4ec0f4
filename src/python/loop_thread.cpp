#include "python/loop_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <mutex>
#include <utility>

namespace feroce::python {

namespace {

struct Stopped {};

// Nobody is there to catch it; what a stop throws through a call that blocked is no news.
void tell_exception(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Stopped&) {
        return;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "feroce: an exception in a thread of ours: %s\n", error.what());
    } catch (...) {
        std::fprintf(stderr, "feroce: an exception in a thread of ours\n");
    }
}

// A thread that is made meanwhile inherits the mask.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_;
};

}  // namespace

class LoopThread::Inner {
public:
    void set_runtime(rdma::Runtime* runtime) {
        const std::lock_guard lock(mutex);
        to_wake = runtime;
    }
    void stop() {
        const std::lock_guard lock(mutex);
        loop = nullptr;
        stopping.store(true);
        if (to_wake != nullptr) to_wake->wake();
    }

    std::mutex mutex;            // Guards loop, tasks and to_wake.
    rdma::Loop* loop = nullptr;  // While it is driven.
    rdma::TaskGroup* tasks = nullptr;
    rdma::Runtime* to_wake = nullptr;
    // Set once. Sequentially consistent with the wake(): the wait that it ends sees it.
    std::atomic<bool> stopping = false;
    // The thread's own.
    bool driven = false;  // Each wait ends by Stopped then,
    bool told = false;    // else the first one.
};

namespace {

// Another one than the room's own only in that it ends by a stop.
template <class Inner>
class StoppedRuntime final : public rdma::Runtime {
public:
    explicit StoppedRuntime(Inner& inner) : inner_(inner) { inner_.set_runtime(&real_); }
    ~StoppedRuntime() override { inner_.set_runtime(nullptr); }

    Instant now() override { return real_.now(); }
    void wait(Instant until, std::span<const int> fds) override {
        check();
        real_.wait(until, fds);
        check();
    }
    void wake() override { real_.wake(); }
    void relax() override {
        check();
        real_.relax();
    }
    std::pmr::memory_resource& memory() override { return real_.memory(); }
    std::uint64_t random() override { return real_.random(); }
    std::string user_directory() override { return real_.user_directory(); }
    unsigned processor_count() override { return real_.processor_count(); }
    unsigned current_processor() override { return real_.current_processor(); }

private:
    // Not again where the thread ends: destructors may wait.
    void check() {
        if (!inner_.stopping.load()) return;
        if (inner_.driven || !std::exchange(inner_.told, true)) throw Stopped{};
    }

    Inner& inner_;
    rdma::RealRuntime real_;
};

}  // namespace

std::unique_ptr<rdma::Runtime> LoopThread::Main::make_runtime() {
    return std::make_unique<StoppedRuntime<Inner>>(*inner_);
}

void LoopThread::Main::drive(rdma::Loop& loop, rdma::TaskGroup& tasks) {
    loop.on_exception(tell_exception);
    {
        const std::lock_guard lock(inner_->mutex);
        if (inner_->stopping.load()) return;
        inner_->loop = &loop;
        inner_->tasks = &tasks;
    }
    inner_->driven = true;
    try {
        while (!inner_->stopping.load()) loop.poll_or_wait();
    } catch (const Stopped&) {
        inner_->told = true;  // It was.
    }
    loop.poll();  // What was posted last: it uses what ends now.
    inner_->driven = false;
    inner_->told = true;
}

std::function<void()> LoopThread::Main::stopper() const {
    return [inner = inner_] { inner->stop(); };
}

LoopThread::LoopThread(std::function<void(Main&)> main) : inner_(std::make_shared<Inner>()) {
    const SignalsBlocked blocked;
    thread_ = std::thread([inner = inner_, work = std::move(main)] {
        Main self(inner);
        try {
            work(self);
        } catch (...) {
            tell_exception(std::current_exception());
        }
    });
}

LoopThread::~LoopThread() {
    stop();
    join();
}

void LoopThread::join() {
    if (!thread_.joinable()) return;
    if (thread_.get_id() == std::this_thread::get_id())
        thread_.detach();
    else
        thread_.join();
}

bool LoopThread::post(std::function<void()> work) const {
    const std::lock_guard lock(inner_->mutex);
    if (inner_->loop == nullptr) return false;
    inner_->loop->post(std::move(work));
    return true;
}

bool LoopThread::spawn(std::function<rdma::Task<void>(rdma::Loop&)> make) const {
    const std::lock_guard lock(inner_->mutex);
    if (inner_->loop == nullptr) return false;
    inner_->loop->post([&loop = *inner_->loop, &tasks = *inner_->tasks, begin = std::move(make)] {
        tasks.spawn(begin(loop));
    });
    return true;
}

void LoopThread::stop() const {
    inner_->stop();
}

void LoopThread::drop(std::shared_ptr<void> last) const {
    if (thread_.get_id() == std::this_thread::get_id()) return;
    const std::lock_guard lock(inner_->mutex);
    if (inner_->loop != nullptr) return inner_->loop->post([held = std::move(last)] {});
    static_cast<void>(std::make_unique<std::shared_ptr<void>>(std::move(last)).release());
}

}  // namespace feroce::python
