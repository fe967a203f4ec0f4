#include "python/home.hpp"

#include <cerrno>

namespace feroce::python {

std::shared_ptr<Home> Home::start() {
    std::shared_ptr<Home> home(new Home);
    home->ready_.get();
    return home;
}

void Home::run(LoopThread::Main& main) {
    try {
        serve(main);
    } catch (const std::exception&) {
        if (told_) throw;
        begun_.set_exception(std::current_exception());
    }
}

void Home::serve(LoopThread::Main& main) {
    const std::unique_ptr<rdma::Runtime> runtime = main.make_runtime();
    rdma::Loop loop(*runtime);
    block::DiskClient disks(loop);
    rdma::TaskGroup tasks(loop);
    loop_ = &loop;
    disks_ = &disks;
    loop.post([this] {
        told_ = true;
        begun_.set_value();
    });
    main.drive(loop, tasks);
}

namespace {

rdma::Error gone() {
    return {EBADF, "it is closed, or was made by another process before a fork()"};
}

}  // namespace

std::uint64_t begin_call(const LoopThread& thread, std::uint64_t queue, std::int64_t timeout,
                         std::function<rdma::Task<void>(std::shared_ptr<Call>)> make) {
    const std::shared_ptr<Call> call = Call::create(queue);
    if (!call) return 0;
    auto begin = [call, timeout, work = std::move(make)](rdma::Loop& loop) {
        auto task = guarded(call, work(call)).with(call->stop());
        if (timeout >= 0) task = std::move(task).until(loop.after(Duration(timeout)));
        return task;
    };
    try {
        if (!thread.spawn(std::move(begin))) call->finish(gone());
    } catch (const std::exception&) {
        call->finish(error_of(std::current_exception()));
    }
    return call->handle();
}

std::uint64_t failed_call(std::uint64_t queue, const rdma::Error& error) {
    const std::shared_ptr<Call> call = Call::create(queue);
    if (!call) return 0;
    call->finish(error);
    return call->handle();
}

std::uint64_t unknown_handle(std::uint64_t queue) {
    return failed_call(queue, gone());
}

}  // namespace feroce::python
