// Workers: threads with a loop each, for programs that want more than one processor. A loop and all
// that is made with it belong to its thread: work is brought to it by post() or call(). What lives
// on the loops ends before the workers do. What a worker's code throws is written to stderr, and
// the worker goes on; Loop::on_exception on its thread changes that.
//
//     Workers workers = Workers::start(2, {.processors = {0, 1}}).value();
//     workers.call(0, [&] { return serve(workers.loop(0)); });
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <type_traits>
#include <vector>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"

namespace feroce::rdma {

class Workers {
public:
    struct Options {
        // Worker i stays on processor i of these, from the front again if they are too few. Empty:
        // wherever the system puts it.
        std::vector<int> processors = {};
        Duration spin = Loop::Options{}.spin;
    };

    // Each loop has a completion vector of its own, as far as devices have so many.
    static Result<Workers> start(std::size_t count, const Options& options);
    static Result<Workers> start(std::size_t count) { return start(count, Options()); }
    Workers(Workers&&) noexcept;
    Workers& operator=(Workers&&) noexcept;
    ~Workers();

    std::size_t size() const { return threads_.size(); }
    Loop& loop(std::size_t worker) const;
    std::vector<Loop*> loops() const;

    void post(std::size_t worker, std::function<void()> work) const {
        loop(worker).post(std::move(work));
    }
    // Blocks until the function has run there. Not from one of the workers' own threads.
    template <class Function>
    auto call(std::size_t worker, Function function) const {
        std::packaged_task<std::invoke_result_t<Function>()> task(std::move(function));
        post(worker, [&task] { task(); });
        return task.get_future().get();
    }

private:
    class Thread;
    explicit Workers(std::vector<std::unique_ptr<Thread>> threads);

    std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace feroce::rdma
