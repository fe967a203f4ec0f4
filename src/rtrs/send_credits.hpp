// SendCredits: the account of a send queue. Posts take room; completions give it back, each that of
// all posts since the completion before, since only every few posts ask for one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "base/ring.hpp"

namespace feroce::rtrs {

class SendCredits {
public:
    explicit SendCredits(std::uint32_t room) : room_(room), free_(room), asked_(room) {}

    bool has(std::size_t count) const { return free_ >= count; }
    // Positions in the order of posting: all that was taken up to given() has been given back.
    std::uint64_t taken() const { return taken_; }
    std::uint64_t given() const { return given_; }

    // For a post whose own completion, if it has one, gives nothing back.
    void take(std::size_t count) {
        ASSERT(has(count));
        free_ -= static_cast<std::uint32_t>(count);
        unasked_ += static_cast<std::uint32_t>(count);
        taken_ += count;
    }
    // True: the post has to ask for a completion, for which give() will be called.
    bool take_and_ask(std::size_t count, bool wanted = false) {
        take(count);
        if (!wanted && unasked_ < kAskEvery && free_ > room_ / 2) return false;
        asked_.push(unasked_);
        unasked_ = 0;
        return true;
    }
    // By the completions that were asked for, in their order.
    void give() {
        free_ += asked_.front();
        given_ += asked_.front();
        asked_.pop();
    }

private:
    static constexpr std::uint32_t kAskEvery = 16;

    std::uint32_t room_;
    std::uint32_t free_;
    std::uint32_t unasked_ = 0;  // Taken since the last post that asked.
    std::uint64_t taken_ = 0;
    std::uint64_t given_ = 0;
    Ring<std::uint32_t> asked_;  // How much room each awaited completion gives back.
};

}  // namespace feroce::rtrs
