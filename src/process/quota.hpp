// Quota: how many objects of one kind a process may have. What ibv_query_device tells is what is
// enforced: both ask here.
#pragma once

#include <atomic>
#include <cstdint>

namespace feroce::process {

class Quota {
public:
    explicit Quota(std::uint32_t limit) : limit_(limit) {}

    std::uint32_t limit() const { return limit_; }
    // False if there are as many as may be. Only the count matters, hence relaxed.
    [[nodiscard]] bool take() {
        if (taken_.fetch_add(1, std::memory_order_relaxed) < limit_) return true;
        give();
        return false;
    }
    void give() { taken_.fetch_sub(1, std::memory_order_relaxed); }

private:
    const std::uint32_t limit_;
    std::atomic<std::uint32_t> taken_{0};
};

struct Quotas {
    // Any one shard has numbers for all of them, so that it does not matter which one is picked.
    Quota queue_pairs{32'000};
    Quota completion_queues{65'536};
    Quota shared_receive_queues{60'000};
    Quota address_handles{1U << 20};
};

}  // namespace feroce::process
