// HoldBudget: how much memory the queue pairs of an engine may take together for packets that came
// too early (rc/out_of_order_store.hpp). Used under the engine's lock.
#pragma once

#include <cstddef>

namespace feroce::transport {

class HoldBudget {
public:
    explicit HoldBudget(std::size_t bytes_max) : quarter_(bytes_max / 4), left_(bytes_max) {}

    std::size_t left() const { return left_; }
    // Then one may have more than its share.
    bool is_quarter_left() const { return left_ >= quarter_; }
    [[nodiscard]] bool take(std::size_t bytes) {
        if (bytes > left_) return false;
        left_ -= bytes;
        return true;
    }
    void give_back(std::size_t bytes) { left_ += bytes; }

private:
    std::size_t quarter_;
    std::size_t left_;
};

}  // namespace feroce::transport
