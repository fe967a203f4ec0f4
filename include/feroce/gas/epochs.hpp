// Epochs: when memory that others may still look at can be used again. A thread that walks through
// shared objects pins first; one that has unlinked an object retires it instead of freeing it. The
// object is freed once every thread that was pinned then has let go.
//
// A pin is a word on the pinning thread's own node, another one for each pin, so it costs no round
// trip. A thread that has retired objects reads the pins of all threads, after the objects were
// unlinked, and frees them when each of those pins has ended. Nothing of this is kept in one place:
// no node is needed but those that live.
//
// A pin lasts as long as a lease (NodeOptions::lease): a thread that is pinned for longer, or whose
// node is lost, is no longer waited for once the lease and its grace are over, by the clock of the
// thread that collects. So a thread that died does not stop reclamation for ever, and one that was
// only stopped finds by Pin::check() that what it had found may be gone, before it changes
// anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "feroce/gas/allocator.hpp"
#include "feroce/gas/sync/mutex.hpp"
#include "feroce/task_group.hpp"

namespace feroce::gas {

class Epochs {
public:
    struct alignas(64) Pinned {
        // Which group of pins of its thread is the oldest one. 0: not pinned.
        plain<std::uint64_t> group;
    };

    // Lets go when it ends.
    class [[nodiscard]] Pin {
    public:
        Pin(Epochs& epochs, std::uint64_t group, Instant until)
            : epochs_(&epochs), group_(group), until_(until) {}
        Pin(Pin&& other) noexcept
            : epochs_(std::exchange(other.epochs_, nullptr)),
              group_(other.group_),
              until_(other.until_) {}
        Pin& operator=(Pin&&) = delete;
        ~Pin() {
            if (epochs_ != nullptr) epochs_->let_go(group_);
        }
        // ESTALE if it has lasted for longer than a lease: touch nothing that was found under it.
        Result<> check() const;

    private:
        Epochs* epochs_;
        std::uint64_t group_;
        Instant until_;
    };

    // `own` is this thread's word.
    Epochs(Lanes& lanes, Allocator& allocator, ptr<Pinned> own)
        : lanes_(lanes),
          allocator_(allocator),
          own_(lanes.local(own)),
          collected_(lanes.loop()),
          tasks_(lanes.loop()) {
        retired_.reserve(kReserved);
        doomed_.reserve(kReserved);
    }
    // The words of a node's threads.
    void add_node(span<Pinned> threads);

    // Before the first look at what may be retired.
    Pin pin();
    // When nobody can find it any more. Never fails and never waits: every kBatch times it starts
    // to collect, beside everything else that the thread's loop does.
    template <class T>
    void retire(ptr<T> object) {
        retire(object.template as<void>(), sizeof(T));
    }
    void retire(ptr<void> block, std::size_t bytes);
    // Frees what can be freed by now, or waits for the task that does. A node that cannot be asked
    // makes it free less, not fail.
    Call<> collect() { return {lanes_.loop(), collecting()}; }
    // Tasks that must finish though their callers were destroyed, and use pins or the allocator of
    // the thread; for others see Lanes::shelter.
    rdma::TaskGroup& shelter() { return tasks_; }
    std::size_t retired() const { return retired_.size() + doomed_.size(); }  // And not freed yet.

private:
    static constexpr std::size_t kBatch = 32;
    static constexpr std::size_t kReserved = 1024;  // Room for what is retired, at first.
    struct Retired {
        ptr<void> block;
        std::size_t bytes = 0;
    };

    // Pins of tasks of this thread. Only the older of two groups is shown to others, and no pin
    // joins it any more; so it ends, however many tasks take turns.
    struct Group {
        std::uint64_t number = 0;
        unsigned pins = 0;
    };
    struct Thread {
        Watch watch;              // Since when it is pinned.
        std::uint64_t found = 0;  // Its word as read last; 0 as well if its lease is over.
        std::uint64_t seen = 0;   // As read after the doomed were unlinked.
    };
    struct Watched {
        span<Pinned> words;
        Watch watch;  // Since when it is lost.
        std::vector<Thread> threads;
    };

    // One task at a time.
    struct Collecting {
        explicit Collecting(Epochs& of) : epochs(of) { epochs.collecting_ = true; }
        ~Collecting() {
            epochs.collecting_ = false;
            epochs.collected_.notify_all();
        }
        Collecting(const Collecting&) = delete;
        Collecting& operator=(const Collecting&) = delete;
        Epochs& epochs;
    };

    void show(Group group);
    void let_go(std::uint64_t group);
    rdma::Task<Result<>> collecting();
    rdma::Task<void> collect_later();
    rdma::Task<Result<>> look_at(Watched& node);
    bool may_be_pinned(Watched& node);  // One of the doomed.
    rdma::Task<Result<>> free_doomed();

    Lanes& lanes_;
    Allocator& allocator_;
    Pinned* own_;
    std::vector<Watched> nodes_;
    std::vector<Retired> retired_;  // Not yet doomed.
    std::vector<Retired> doomed_;   // Freed when all that were pinned have let go.
    std::size_t since_collect_ = 0;
    Group shown_;
    Group young_;
    std::uint64_t groups_ = 0;
    Instant shown_until_{};  // The pins of shown_ are over then.
    bool collecting_ = false;
    rdma::Signal collected_;
    rdma::TaskGroup tasks_;  // Ends first: its tasks use the rest.
};

}  // namespace feroce::gas
