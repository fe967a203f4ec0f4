// See workers.hpp. Beside resolve.cpp the one place of the room that starts threads.
#include "feroce/workers.hpp"

#include <pthread.h>
#include <sched.h>

#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "base/assert.hpp"
#include "rdma/failure.hpp"

namespace feroce::rdma {

namespace {

Result<> stay_on(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (processor < 0 || processor >= CPU_SETSIZE)
        return Error(EINVAL, "there is no processor " + std::to_string(processor));
    CPU_SET(static_cast<unsigned>(processor), &set);
    const int code = ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
    if (code == 0) return {};
    return failure("a worker cannot stay on processor " + std::to_string(processor) +
                       "; `taskset -p $$` tells which this process may use",
                   code);
}

void tell(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "feroce: a worker's code threw an exception: %s\n", error.what());
    } catch (...) {
        std::fprintf(stderr, "feroce: a worker's code threw an exception\n");
    }
}

}  // namespace

class Workers::Thread {
public:
    // Returns when the thread is at work, or has failed to be.
    static Result<std::unique_ptr<Thread>> start(const Loop::Options& options, int processor) {
        std::unique_ptr<Thread> made(new Thread);
        std::promise<Result<>> begun;
        std::future<Result<>> begins = begun.get_future();
        try {
            made->thread_ = std::thread([&self = *made, options, processor, &begun] {
                self.run(options, processor, begun);
            });
        } catch (const std::system_error& thrown) {
            return failure("a worker's thread could not be started", thrown.code().value());
        }
        if (Result<> fine = begins.get(); !fine) return fine.error();
        return made;
    }
    ~Thread() {
        if (loop_ != nullptr) loop_->post([this] { stop_ = true; });
        if (thread_.joinable()) thread_.join();
    }
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;

    Loop& loop() const { return *loop_; }

private:
    Thread() = default;

    void run(const Loop::Options& options, int processor, std::promise<Result<>>& begun) {
        if (processor >= 0)
            if (Result<> fine = stay_on(processor); !fine) return begun.set_value(fine);
        // Made here, so that its memory is near the processor that uses it.
        std::optional<RealRuntime> runtime;
        try {
            runtime.emplace();
        } catch (const std::system_error& thrown) {
            return begun.set_value(Error(thrown.code().value(), thrown.what()));
        }
        Loop loop(*runtime, options);
        loop.on_exception(tell);  // Nobody else is there to catch it.
        loop_ = &loop;
        begun.set_value({});
        while (!stop_) loop.poll_or_wait();
    }

    Loop* loop_ = nullptr;  // Written before start() returns, and not after.
    bool stop_ = false;     // The thread's own.
    std::thread thread_;
};

Workers::Workers(std::vector<std::unique_ptr<Thread>> threads) : threads_(std::move(threads)) {}
Workers::Workers(Workers&&) noexcept = default;
Workers& Workers::operator=(Workers&&) noexcept = default;
Workers::~Workers() = default;

Result<Workers> Workers::start(std::size_t count, const Options& options) {
    std::vector<std::unique_ptr<Thread>> threads;
    const std::vector<int>& on = options.processors;
    for (std::size_t i = 0; i < count; ++i) {
        const Loop::Options loop{.spin = options.spin, .vector = static_cast<std::uint32_t>(i)};
        auto made = Thread::start(loop, on.empty() ? -1 : on[i % on.size()]);
        if (!made) return made.error();
        threads.push_back(*std::move(made));
    }
    return Workers(std::move(threads));
}

Loop& Workers::loop(std::size_t worker) const {
    ASSERT(worker < threads_.size());
    return threads_[worker]->loop();
}

std::vector<Loop*> Workers::loops() const {
    std::vector<Loop*> out;
    out.reserve(threads_.size());
    for (const auto& thread : threads_) out.push_back(&thread->loop());
    return out;
}

}  // namespace feroce::rdma
