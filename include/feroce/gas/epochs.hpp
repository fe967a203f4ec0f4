// Epochs: when memory that others may still look at can be used again. Who walks through shared
// objects pins first; who has unlinked an object retires it instead of freeing it. The object is
// freed once everybody who was pinned then has let go.
//
// One number counts epochs for the cluster. A pin is a word on the pinning thread's own node, which
// says in which epoch it began; so it costs no round trip, and whoever makes the number go up tells
// every node. It goes up only when all who are pinned have seen it; an object is freed when it has
// gone up twice since the object was retired.
// A thread that dies while it is pinned stops reclamation, but nothing else: what is retired from
// then on stays allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "feroce/gas/allocator.hpp"

namespace feroce::gas {

class Epochs {
public:
    struct alignas(64) Pinned {
        plain<std::uint64_t> since;  // An epoch + 1; 0: not pinned.
    };

    // Lets go when it ends.
    class [[nodiscard]] Pin {
    public:
        explicit Pin(Epochs& epochs) : epochs_(&epochs) {}
        Pin(Pin&& other) noexcept : epochs_(std::exchange(other.epochs_, nullptr)) {}
        Pin& operator=(Pin&& other) noexcept {
            std::swap(epochs_, other.epochs_);
            return *this;
        }
        ~Pin() {
            if (epochs_ != nullptr) epochs_->let_go();
        }

    private:
        Epochs* epochs_;
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
    void add_node(const Words& words) { nodes_.push_back(words); }

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

    void let_go();
    rdma::Task<Result<bool>> all_have_seen(std::uint64_t epoch);
    rdma::Task<Result<>> advance(std::uint64_t from);

    Lanes& lanes_;
    Allocator& allocator_;
    ptr<nic<std::uint64_t>> count_;
    Pinned* own_;
    plain<std::uint64_t>* told_;
    std::vector<Words> nodes_;
    std::vector<Retired> retired_;
    std::size_t since_collect_ = 0;
    std::uint64_t seen_ = 0;  // Of the count; never more than it is.
    unsigned pins_ = 0;       // Of tasks of this thread.
};

}  // namespace feroce::gas
