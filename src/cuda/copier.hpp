// Copier: the thread that copies between one CUDA context's memory and the host's. It is the only
// one of ours that calls the driver after a registration: a call may take long, and the shards'
// locks and the program's threads must not wait for it.
//
// Copies run on two streams of its own, one a direction, which no kernel of the program holds up.
// Only pinned memory is copied: for what is staged elsewhere the thread has a few pinned pieces. A
// copy is over when an event behind it on the stream is, and that is when the listener hears of it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "cuda/driver.hpp"
#include "cuda/pinned_pool.hpp"
#include "cuda/pointer.hpp"
#include "host/host.hpp"
#include "mem/far_memory.hpp"

namespace feroce::cuda {

// Hears when a job is over, after the copy's listener.
class JobOwner {
public:
    virtual ~JobOwner() = default;
    virtual void job_over(unsigned round) noexcept = 0;
};

struct Job {
    mem::Copy copy;
    std::shared_ptr<JobOwner> owner;
    const Place* place = nullptr;  // The owner's.
    unsigned round = 0;            // For job_over().
};

class Copier {
public:
    // Makes streams, events and pinned memory, which may wait for the program's kernels.
    static Result<std::unique_ptr<Copier>> make(const Driver& driver, Context context,
                                                host::Host& host);
    ~Copier();  // No job is left.
    Copier(const Copier&) = delete;
    Copier& operator=(const Copier&) = delete;

    PinnedPool& pool() { return *pool_; }
    // Any thread, also under locks. Without memory for it the job is over at once, and has failed.
    void start(Job job) noexcept;

private:
    struct Flight {  // Copies with one event behind them.
        Event event = nullptr;
        std::vector<Job> jobs;            // Both have room for as many as there can be.
        std::vector<std::byte*> detours;  // A job's pinned piece, or null if it needs none.
        std::uint64_t bytes = 0;
    };
    // Flights are made once and go from list to list, so that the thread allocates nothing.
    using Flights = std::list<Flight>;
    struct Lane {  // One direction.
        Stream stream = nullptr;
        Flights flights;  // In the order of the stream.
        Flights open;     // At most one: no event is behind it yet.
    };

    Copier(const Driver& driver, Context context);
    Result<void> prepare();
    void run();
    bool take_jobs(bool busy);
    bool submit();
    bool launch(const Job& job);
    void add_to_flight(Lane& lane, const Job& job, std::byte* detour);
    void close_flight(Lane& lane);
    bool collect();
    void land(Flights& flights, bool good);
    static void finish(const Job& job, bool good);

    const Driver& driver_;
    const Context context_;
    std::shared_ptr<PinnedPool> pool_;

    // The thread's own.
    std::array<Lane, 2> lanes_;
    Flights idle_flights_;
    std::vector<std::byte*> idle_detours_;
    std::vector<Job> todo_;  // Takes turns with queue_.
    std::size_t done_ = 0;   // Of todo_, from the front.
    std::uint32_t idle_rounds_ = 0;

    std::mutex mutex_;  // Guards the next two.
    std::vector<Job> queue_;
    bool ends_ = false;
    std::condition_variable wake_;
    std::unique_ptr<host::Task> thread_;
};

}  // namespace feroce::cuda
