// Epochs: when memory that others may still look at can be used again. Who walks through shared
// objects pins first; who has unlinked an object retires it instead of freeing it. The object is
// freed once everybody who was pinned then has let go.
//
// One number counts epochs for the cluster. A pin is a word on the pinning thread's own node, which
// says in which epoch it began; so it costs no round trip, and whoever makes the number go up tells
// every node. It goes up only when all who are pinned have seen it; an object is freed when it has
// gone up twice since the object was retired.
//
// A pin lasts as long as a lease (NodeOptions::lease): a thread that is pinned for longer, or whose
// node is lost, is no longer waited for once the lease and its grace are over, by the clock of who
// collects. So a thread that died does not stop reclamation for ever, and one that was only stopped
// finds by Pin::check() that what it had found may be gone, before it changes anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "feroce/gas/allocator.hpp"
#include "feroce/gas/sync/mutex.hpp"

namespace feroce::gas {

class Epochs {
public:
    struct alignas(64) Pinned {
        // The epoch in which it began, + 1, modulo 2^32; and below, which pin of its thread it is.
        plain<std::uint64_t> since;  // 0: not pinned.
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

    // What a node has: the pins of its threads, and the count of epochs as it was told.
    struct Words {
        span<Pinned> threads;
        ptr<plain<std::uint64_t>> told;
    };

    Epochs(Lanes& lanes, Allocator& allocator, ptr<nic<std::uint64_t>> count, const Words& own,
           std::size_t thread)
        : lanes_(lanes),
          allocator_(allocator),
          count_(count),
          own_(lanes.local(own.threads[thread])),
          told_(lanes.local(own.told)) {
        retired_.reserve(kReserved);
    }
    void add_node(const Words& words);

    // Before the first look at what may be retired.
    Pin pin();
    // When nobody can find it any more.
    template <class T>
    rdma::Task<Result<>> retire(ptr<T> object) {
        return retire(object.template as<void>(), sizeof(T));
    }
    rdma::Task<Result<>> retire(ptr<void> block, std::size_t bytes);
    // Frees what can be; retire() does this every kBatch times.
    rdma::Task<Result<>> collect();
    std::size_t retired() const { return retired_.size(); }  // And not freed yet.

private:
    static constexpr std::size_t kBatch = 32;
    static constexpr std::size_t kReserved = 1024;  // Room for what is retired, at first.
    static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
    struct Retired {
        ptr<void> block;
        std::size_t bytes = 0;
        std::uint64_t epoch = kUnknown;  // The count after it was unlinked.
    };

    // Pins of tasks of this thread. Only the older of two groups is shown to others, and no pin
    // joins it any more; so it ends, and the count goes on, however many tasks take turns.
    struct Group {
        std::uint64_t number = 0;
        std::uint64_t epoch = 0;
        unsigned pins = 0;
    };
    struct Watched {
        Words words;
        Watch node;                  // Since when it is lost.
        std::vector<Watch> threads;  // Since when they are pinned.
    };

    void show(const Group& group);
    void let_go(std::uint64_t group);
    rdma::Task<Result<bool>> all_have_seen(std::uint64_t epoch);
    rdma::Task<Result<bool>> have_seen(Watched& node, std::uint64_t epoch);
    rdma::Task<Result<>> advance(std::uint64_t from);

    Lanes& lanes_;
    Allocator& allocator_;
    ptr<nic<std::uint64_t>> count_;
    Pinned* own_;
    plain<std::uint64_t>* told_;
    std::vector<Watched> nodes_;
    std::vector<Retired> retired_;
    std::size_t since_collect_ = 0;
    std::uint64_t seen_ = 0;  // Of the count; never more than it is.
    std::uint64_t groups_ = 0;
    std::uint32_t turns_ = 0;
    Group shown_, young_;
};

}  // namespace feroce::gas
