// Network: the network namespace in which this process entered the port. A socket, a unix name and
// a list of interfaces belong to the namespace of the thread that asks for them, and a thread of
// the program may move to another one at any time; going back takes privileges. So a thread of ours
// stays, and does there what the program's threads ask for. It sleeps otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/gid.hpp"
#include "base/result.hpp"
#include "port/fd.hpp"
#include "port/route_memory.hpp"
#include "port/thread.hpp"

namespace feroce::port {

class Network {
public:
    // That of the calling thread, now.
    static Result<std::shared_ptr<Network>> enter();
    ~Network();
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;

    // Does `work` in this network and returns what it returns: on the calling thread if that is
    // here, else on ours, one at a time. The work takes no lock that a caller may hold, and calls
    // nothing of the program's.
    template <class Work>
    auto run(Work&& work) {
        using Out = std::invoke_result_t<Work&>;
        if (is_here()) return work();
        if constexpr (std::is_void_v<Out>) {
            run_there(&work,
                      [](void* it) { (*static_cast<std::remove_reference_t<Work>*>(it))(); });
        } else {
            Job<std::remove_reference_t<Work>, Out> job{work, {}};
            run_there(&job, [](void* it) {
                auto& asked = *static_cast<decltype(job)*>(it);
                asked.out.emplace(asked.work());
            });
            return std::move(*job.out);
        }
    }

    // The address that packets to `destination` leave from; `scope` is that of a link-local one.
    // The kernel is asked again after its tables have changed. Any thread.
    Result<Gid> source_for(const Gid& destination, std::uint32_t scope);

private:
    template <class Work, class Out>
    struct Job {
        Work& work;
        std::optional<Out> out;
    };

    explicit Network(std::uint64_t id);
    bool is_here() const;
    void look_at_changes();
    void run_there(void* job, void (*call)(void*));
    void body();

    enum Turn : std::uint32_t { kCaller, kThread, kEnd };
    void give(Turn turn);
    Turn await_other_than(Turn turn);

    const std::uint64_t id_;  // 0: not known, so that no thread is known to be here.
    std::mutex mutex_;        // Of the caller whose job it is.
    std::atomic<std::uint32_t> turn_{kCaller};
    // Of whose turn it is.
    void* job_ = nullptr;
    void (*call_)(void*) = nullptr;
    std::exception_ptr thrown_;
    const Fd changes_;         // Of tables that decide on routes; without it nothing is remembered.
    std::mutex routes_mutex_;  // Guards the next, and reading the changes.
    RouteMemory routes_;
    Thread thread_;
};

}  // namespace feroce::port
