#include "verbs/lint_order.hpp"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace feroce::verbs {
namespace {

constexpr std::size_t kWord = 8;
constexpr std::size_t kPiece = 64;
constexpr std::uint64_t kSeed = 22;  // A run is repeated as it was, as far as threads allow.
constexpr timespec kWindow{0, 2'000'000};

// How many bytes lie before the aligned word with the last one.
std::size_t before_last(const std::byte* at, std::size_t size) {
    const auto end = reinterpret_cast<std::uintptr_t>(at) + size;
    const std::size_t last = (end - 1) % kWord + 1;
    return size > last ? size - last : 0;
}

// All pieces once, beginning with any.
bool store_pieces(std::byte* at, const std::byte* from, std::size_t size, std::uint64_t chance,
                  mem::Watch::Store store) {
    const std::size_t count = (size + kPiece - 1) / kPiece;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t first = (chance + i) % count * kPiece;
        if (!store(at + first, from + first, std::min(kPiece, size - first))) return false;
    }
    return true;
}

}  // namespace

AnyOrder::AnyOrder() : random_(kSeed) {}

// Only one placement of the process waits at a time.
AnyOrder::Hold AnyOrder::begin(std::size_t held) {
    if (held == 0 || busy_.exchange(true)) return Hold::Nothing;
    const std::lock_guard lock(mutex_);
    const Hold hold = trial_.next(random_.next());
    if (hold == Hold::Nothing) busy_.store(false);
    return hold;
}

void AnyOrder::wait(Hold hold) {
    window_.store(hold);
    // Not by the C library: its function is a cancellation point, and locks are held here. A signal
    // may end it early; then it tells less.
    (void)::syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &kWindow, nullptr);
    window_.store(Hold::Nothing);
    busy_.store(false);
}

bool AnyOrder::place(std::byte* at, const std::byte* from, std::size_t size,
                     mem::Watch::Store store) {
    const std::size_t held = before_last(at, size);
    const Hold hold = begin(held);
    if (hold == Hold::All) wait(hold);
    const bool last = store(at + held, from + held, size - held);
    if (hold == Hold::AllButLast) wait(hold);
    std::uint64_t chance = 0;
    {
        const std::lock_guard lock(mutex_);
        chance = random_.next();
    }
    return last && store_pieces(at, from, held, chance, store);
}

bool AnyOrder::posts() {
    const Hold hold = window_.exchange(Hold::Nothing);  // Counted once.
    if (hold == Hold::Nothing) return false;
    const std::lock_guard lock(mutex_);
    return trial_.reacted(hold);
}

}  // namespace feroce::verbs
