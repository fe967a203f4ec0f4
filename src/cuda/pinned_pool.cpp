#include "cuda/pinned_pool.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "base/rollback.hpp"

namespace feroce::cuda {
namespace {

constexpr std::uint32_t kPiece = mem::FarMemory::kPieceBytes;

class PinnedStaging final : public mem::Staging {
public:
    PinnedStaging(std::shared_ptr<PinnedPool> pool, std::byte* piece, std::uint32_t size)
        : Staging(ByteSpan(piece, size)), pool_(std::move(pool)), piece_(piece) {}
    ~PinnedStaging() override { pool_->give(piece_); }

private:
    std::shared_ptr<PinnedPool> pool_;
    std::byte* piece_;
};

}  // namespace

Result<std::shared_ptr<PinnedPool>> PinnedPool::make(const Driver& driver, const Size& size) {
    const std::size_t bytes =
        std::size_t{size.small_pieces} * kSmallBytes + std::size_t{size.pieces} * kPiece;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return Error{ENOMEM, "no memory to stage GPU memory in"};
    if (driver.host_register(memory, bytes, kRegisterForAllContexts) != kSuccess) {
        (void)::munmap(memory, bytes);
        return Error{ENOMEM, "CUDA does not pin memory to stage GPU memory in"};
    }
    // A child of the program would get pages of its own, and the GPU keeps the old ones.
    (void)::madvise(memory, bytes, MADV_DONTFORK);
    return std::shared_ptr<PinnedPool>(
        new PinnedPool(driver, size, static_cast<std::byte*>(memory), bytes));
}

PinnedPool::PinnedPool(const Driver& driver, const Size& size, std::byte* start, std::size_t bytes)
    : driver_(driver),
      start_(start),
      bytes_(bytes),
      first_large_(start + std::size_t{size.small_pieces} * kSmallBytes),
      large_(size.pieces) {
    for (std::uint32_t i = 0; i < size.small_pieces; ++i)
        small_.push_back(start_ + std::size_t{i} * kSmallBytes);
    for (std::uint32_t i = 0; i < size.pieces; ++i)
        large_.push(first_large_ + std::size_t{i} * kPiece);
}

PinnedPool::~PinnedPool() {
    (void)driver_.host_unregister(start_);  // Fails where the context is gone: it is not pinned.
    (void)::munmap(start_, bytes_);
}

std::byte* PinnedPool::take(std::uint32_t size) {
    ASSERT(size <= kPiece);
    const std::lock_guard hold(mutex_);
    std::byte* piece = nullptr;
    if (size <= kSmallBytes && !small_.empty()) {
        piece = small_.back();
        small_.pop_back();
    } else if (!large_.empty()) {
        piece = large_.front();
        large_.pop();
    }
    return piece;
}

void PinnedPool::give(std::byte* piece) {
    const std::lock_guard hold(mutex_);
    if (piece < first_large_)
        small_.push_back(piece);  // It had room for all of them.
    else
        large_.push(piece);
}

std::unique_ptr<mem::Staging> PinnedPool::stage(std::uint32_t size) {
    std::byte* piece = take(size);
    if (piece == nullptr) return mem::heap_staging(size);
    Rollback give_back([&] { give(piece); });
    auto staging = std::make_unique<PinnedStaging>(shared_from_this(), piece, size);
    give_back.keep();
    return staging;
}

bool PinnedPool::holds(ByteView bytes) const {
    return bytes.data() >= start_ && bytes.data() + bytes.size() <= start_ + bytes_;
}

}  // namespace feroce::cuda
