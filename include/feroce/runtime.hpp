// Runtime: the world as the logic above the waist sees it, handed in, so that the same program runs
// on threads with the real clock and simulated on fibers with virtual time. One Runtime per Loop.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>

#include "feroce/time.hpp"

namespace feroce::rdma {

class Runtime {
public:
    virtual ~Runtime() = default;

    virtual Instant now() = 0;
    // Returns when one of the fds is readable, at `until`, after a wake(), or for no reason at all.
    virtual void wait(Instant until, std::span<const int> fds) = 0;
    // Ends a wait() that runs or comes next. The only function for any thread.
    virtual void wake() = 0;
    // Between two looks of a loop that spins.
    virtual void relax() = 0;
    // For everything that is registered: addresses travel in packets.
    virtual std::pmr::memory_resource& memory() = 0;
    virtual std::uint64_t random() = 0;
    // A directory that is this user's alone, where programs can be asked about themselves. Empty:
    // there is none in this world.
    virtual std::string user_directory() { return {}; }
    // How many processors this process may use, and on which of them (from 0) this thread is now.
    // It may be moved at any time: a hint for what is kept apart by processor.
    virtual unsigned processor_count() { return 1; }
    virtual unsigned current_processor() { return 0; }
};

// Threads of the kernel: steady clock, ppoll, and memory that suits huge pages when it is large.
class RealRuntime final : public Runtime {
public:
    RealRuntime();  // Throws std::system_error if there is no descriptor left.
    ~RealRuntime() override;
    RealRuntime(const RealRuntime&) = delete;
    RealRuntime& operator=(const RealRuntime&) = delete;

    Instant now() override;
    void wait(Instant until, std::span<const int> fds) override;
    void wake() override;
    void relax() override;
    std::pmr::memory_resource& memory() override;
    std::uint64_t random() override;
    std::string user_directory() override;
    unsigned processor_count() override;
    unsigned current_processor() override;

private:
    int wake_fd_;
};

}  // namespace feroce::rdma
