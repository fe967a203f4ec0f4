// LeaseLock: a mutex that survives its holder. A holder has it for the time of a lease and renews
// it before that ends; a waiter that has seen the same word for as long as a lease and its
// grace takes it over. One round trip to take, to renew and to release; not fair.
//
// What is promised: while held() is true nobody else holds the lock, if clocks run at the same
// speed (they are never compared) and what was posted while it was true arrives within the grace or
// never. RDMA has no conditional write, so a program that was stopped between its look at held()
// and its write for longer than the grace can still write late. Where that matters, commit by
// compare-and-swap, or give token() along: it grows with every holder, and a receiver that checks
// it can refuse an older one.
#pragma once

#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class LeaseLock final : public Mutex {
public:
    struct alignas(64) Line {
        // From the top: the token, how often it was renewed (8 bits), the holder + 1 (16 bits).
        nic<std::uint64_t> word;
    };

    LeaseLock(Lanes& lanes, ptr<Line> line) : Mutex(lanes), line_(line) {}
    // As of every Mutex, but that lock_until() takes it over, too, if its holder died, and that
    // try_lock() is false if somebody has it, dead or alive. unlock() and renew(): ESTALE if the
    // lease had ended, and another has the lock or has had it since.
    Call<> renew() { return {lanes_.loop(), renewing()}; }

    bool held() { return word_ != 0 && lanes_.loop().now() < until_; }
    // Larger than that of every holder before. 0 if it is not held.
    std::uint64_t token() const { return word_ >> kTokenShift; }

private:
    rdma::Task<Result<>> locking() override;
    rdma::Task<Result<bool>> locking_until(Instant deadline) override;
    rdma::Task<Result<bool>> trying() override;
    rdma::Task<Result<>> unlocking() override;
    rdma::Task<Result<>> renewing();

    static constexpr unsigned kTokenShift = 24;
    static constexpr unsigned kBeatShift = 16;

    static bool is_free(std::uint64_t word) { return (word & 0xffff) == 0; }
    std::uint64_t own_after(std::uint64_t word) const;
    static std::uint64_t freed(std::uint64_t word) { return word >> kTokenShift << kTokenShift; }
    // Replaces the word and gives what it was.
    static rdma::Task<Result<std::uint64_t>> replace(Lanes& lanes, ptr<Line> line,
                                                     std::uint64_t expected, std::uint64_t desired);
    static rdma::Task<Result<>> release(Lanes& lanes, ptr<Line> line, std::uint64_t word);
    // `found` is what the word was; true if it was the expected one and is ours now.
    rdma::Task<Result<bool>> take(std::uint64_t expected, std::uint64_t& found);

    ptr<Line> line_;
    std::uint64_t word_ = 0;   // While it is held.
    std::uint64_t guess_ = 0;  // What the word is when it is free, as far as known.
    Instant until_{};
};

}  // namespace feroce::gas
