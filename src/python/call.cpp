#include "python/call.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace feroce::python {

rdma::Result<std::shared_ptr<Queue>> Queue::create() {
    const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return rdma::Error(errno, "no descriptor for a queue of calls; see `ulimit -n`");
    return std::shared_ptr<Queue>(new Queue(fd));
}

Queue::~Queue() {
    ::close(fd_);
}

void Queue::tell(std::uint64_t call) {
    const std::lock_guard lock(mutex_);
    done_.push_back(call);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof one);
}

std::uint64_t Queue::take(int milliseconds) {
    if (const std::uint64_t call = take_now(); call != 0 || milliseconds == 0) return call;
    pollfd readable{fd_, POLLIN, 0};
    ::poll(&readable, 1, milliseconds);
    return take_now();
}

std::uint64_t Queue::take_now() {
    const std::lock_guard lock(mutex_);
    if (done_.empty()) return 0;
    const std::uint64_t call = done_.front();
    done_.pop_front();
    std::uint64_t count;
    if (done_.empty()) [[maybe_unused]]
        const ssize_t taken = ::read(fd_, &count, sizeof count);
    return call;
}

std::shared_ptr<Call> Call::create(std::uint64_t queue) {
    auto tells = Handles::instance().find<Queue>(queue);
    if (!tells) return nullptr;
    std::shared_ptr<Call> call(new Call(std::move(tells)));
    call->handle_ = Handles::instance().add(call);
    return call;
}

bool Call::finish(Outcome outcome) {
    State expected = State::Runs;
    if (!state_.compare_exchange_strong(expected, State::Tells, std::memory_order_relaxed))
        return false;
    outcome_ = std::move(outcome);
    state_.store(State::Done, std::memory_order_release);
    state_.notify_all();
    queue_->tell(handle_);
    return true;
}

bool Call::cancel() {
    State expected = State::Runs;
    const bool in_time =
        state_.compare_exchange_strong(expected, State::Cancelled, std::memory_order_relaxed);
    if (in_time)
        stop_.request_stop();
    else
        state_.wait(State::Tells, std::memory_order_acquire);
    return in_time;
}

std::uint64_t Call::made() {
    const std::lock_guard lock(mutex_);
    if (outcome_.made) made_ = Handles::instance().add(std::exchange(outcome_.made, nullptr));
    return made_;
}

Duty::~Duty() {
    if (!call_->finished()) call_->finish(rdma::Error(ECANCELED, "feroce was shut down"));
}

rdma::Error error_of(const std::exception_ptr& thrown) {
    rdma::Error no_memory(ENOMEM, "there is not enough memory for the call");
    try {
        std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
        return no_memory;
    } catch (const std::length_error&) {  // More than any memory.
        return no_memory;
    } catch (const std::system_error& error) {  // No thread, no descriptor.
        return {error.code().value(), error.what()};
    } catch (const std::exception& error) {
        return {EIO, error.what()};
    } catch (...) {
        return {EIO, "an exception that is not known"};
    }
}

rdma::Task<void> guarded(std::shared_ptr<Call> call, rdma::Task<void> work) {
    const Duty duty(call);
    try {
        co_await std::move(work);
    } catch (const std::exception&) {
        call->finish(error_of(std::current_exception()));
    }
}

}  // namespace feroce::python
