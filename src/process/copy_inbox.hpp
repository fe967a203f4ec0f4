// CopyInbox: what copies to and from far memory tell a shard (mem/far_memory.hpp), from any thread
// and without the shard's lock. Whoever drives the shard empties it into the engine.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/spinlock.hpp"
#include "base/time.hpp"
#include "device/engine.hpp"
#include "mem/far_memory.hpp"

namespace feroce::process {

class CopyInbox final : public mem::CopyListener {
public:
    // `wake` is called for the first copy in an empty inbox: somebody must look.
    explicit CopyInbox(std::function<void()> wake);

    void make_room(std::size_t copies) override;  // Under the shard's lock.
    void copy_done(mem::CopyToken token, bool good) override;
    // Without the lock. seq_cst: a look that comes too early is made again after the wake-up, or by
    // the thread that decides that none is needed.
    bool pending() const { return pending_.load(); }
    void empty_into(Instant now, device::Engine& engine);  // Under the shard's lock.

private:
    struct Done {
        mem::CopyToken token;
        bool good;
    };
    const std::function<void()> wake_;
    std::atomic<bool> pending_{false};
    Spinlock lock_;  // Guards done_.
    std::vector<Done> done_;
    // Under the shard's lock.
    std::vector<Done> taken_;  // Takes turns with done_.
    std::size_t room_ = 0;     // Both have room for so many.
};

}  // namespace feroce::process
