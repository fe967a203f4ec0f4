// See touch.hpp. Three ways to do each access, by the guard's mode; the first is the data path.
#include "mem/touch.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "base/assert.hpp"
#include "mem/guard_thread.hpp"
#include "mem/unreported.hpp"
#include "mem/word.hpp"

namespace feroce::mem {

namespace {

// Both walk over registered memory, ascending, in aligned pieces; `at` is where they stand.
struct Reader {
    const std::byte* at;
    std::byte* into;
    std::size_t left;

    template <std::size_t Size>
    [[gnu::always_inline]] bool piece() {
        if (!word::load<Size>(at, into)) return false;
        at += Size, into += Size, left -= Size;
        return true;
    }
    [[gnu::always_inline]] bool blocks() {
        const std::size_t size = left / word::kBlock * word::kBlock;
        if (!word::read_blocks(at, into, size)) return false;
        at += size, into += size, left -= size;
        return true;
    }
};

struct Writer {
    std::byte* at;
    const std::byte* from;
    std::size_t left;

    template <std::size_t Size>
    [[gnu::always_inline]] bool piece() {
        using Word = std::conditional_t<
            Size == 8, std::uint64_t,
            std::conditional_t<Size == 4, std::uint32_t,
                               std::conditional_t<Size == 2, std::uint16_t, std::uint8_t>>>;
        Word value;
        std::memcpy(&value, from, Size);
        const bool last = left == Size;
        if (!(last ? word::store_release(at, value) : word::store(at, value))) return false;
        at += Size, from += Size, left -= Size;
        return true;
    }
    [[gnu::always_inline]] bool blocks() {
        if (left < word::kBlock) return true;
        const std::size_t size = (left - 1) / word::kBlock * word::kBlock;
        if (!word::write_blocks(at, from, size)) return false;
        at += size, from += size, left -= size;
        if (left < word::kBlock) return true;
        left = 0;
        return word::write_last_block(at, from);
    }
};

// One piece of this size, if the address is an odd multiple of it and enough is left.
template <std::size_t Size, class Copy>
inline bool head(Copy& copy) {
    const bool odd = (reinterpret_cast<std::uintptr_t>(copy.at) & Size) != 0;
    return !odd || copy.left < Size || copy.template piece<Size>();
}
template <std::size_t Size, class Copy>
inline bool tail(Copy& copy) {
    return copy.left < Size || copy.template piece<Size>();
}

// Pieces of 1, 2, 4 up to the first aligned word, then words, then pieces of 4, 2, 1. If the copy
// ends within the head, the tail takes over, and its pieces are still aligned: a head piece that
// did not fit left the address aligned to more than what remains.
template <class Copy>
[[gnu::always_inline]] inline bool run(Copy copy) {
    if (reinterpret_cast<std::uintptr_t>(copy.at) % 8 != 0 &&
        !(head<1>(copy) && head<2>(copy) && head<4>(copy)))
        return false;
    if (copy.left > word::kBlock && reinterpret_cast<std::uintptr_t>(copy.at) % 16 != 0 &&
        !copy.template piece<8>())
        return false;
    if (reinterpret_cast<std::uintptr_t>(copy.at) % 16 == 0 && !copy.blocks()) return false;
    while (copy.left >= 8)
        if (!copy.template piece<8>()) return false;
    return copy.left == 0 || (tail<4>(copy) && tail<2>(copy) && tail<1>(copy));
}

// Scalars, so that they travel in registers.
[[gnu::noinline]] bool read_guarded(const std::byte* at, std::byte* into, std::size_t size) {
    return run(Reader{at, into, size});
}
[[gnu::noinline]] bool write_guarded(std::byte* at, const std::byte* from, std::size_t size) {
    return run(Writer{at, from, size});
}

class Unmask {  // Takes SIGSEGV and SIGBUS for as long as it lives.
public:
    Unmask() {
        sigset_t both;
        sigemptyset(&both);
        sigaddset(&both, SIGSEGV);
        sigaddset(&both, SIGBUS);
        pthread_sigmask(SIG_UNBLOCK, &both, &before_);
    }
    ~Unmask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    Unmask(const Unmask&) = delete;
    Unmask& operator=(const Unmask&) = delete;

private:
    sigset_t before_;
};

using KernelCopy = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                               unsigned long);

bool copy_by_kernel(KernelCopy copy, void* own, void* registered, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
        const iovec local{static_cast<std::byte*>(own) + done, size - done};
        const iovec remote{static_cast<std::byte*>(registered) + done, size - done};
        const ssize_t moved = copy(getpid(), &local, 1, &remote, 1, 0);
        if (moved <= 0) return false;
        done += static_cast<std::size_t>(moved);
    }
    return true;
}

// All but Direct mode. `by_kernel` stands in when the handler is not ours.
template <class Access, class ByKernel>
bool touch_slowly(Access access, ByKernel by_kernel) {
    if (guard_watched_epoch == guard_epoch.load(std::memory_order_relaxed)) return access();
    switch (guard_look()) {
        case GuardMode::Direct:
            break;
        case GuardMode::Unmasked: {
            const Unmask unmask;
            return access();
        }
        case GuardMode::Kernel:
            return by_kernel();
    }
    return access();
}

[[gnu::noinline, gnu::cold]] bool read_slowly(std::byte* at, std::byte* into, std::size_t size) {
    return touch_slowly([=] { return read_guarded(at, into, size); },
                        [=] { return copy_by_kernel(process_vm_readv, into, at, size); });
}

void tell_written(const void* at, std::size_t size) {
    const Watch* watch = guard_watch.load(std::memory_order_relaxed);
    if (watch != nullptr && watch->written != nullptr) watch->written(at, size);
}

bool write_watched(std::byte* at, const std::byte* from, std::size_t size) {
    const Watch* watch = guard_watch.load(std::memory_order_relaxed);
    if (watch == nullptr || watch->place == nullptr) {
        if (!write_guarded(at, from, size)) return false;
    } else if (!watch->place(at, from, size, write_guarded)) {
        return false;
    }
    tell_written(at, size);
    return true;
}

[[gnu::noinline, gnu::cold]] bool write_slowly(std::byte* at, const std::byte* from,
                                               std::size_t size) {
    return touch_slowly([=] { return write_watched(at, from, size); },
                        [=] {
                            auto* const own = const_cast<std::byte*>(from);  // Only read.
                            if (!copy_by_kernel(process_vm_writev, own, at, size)) return false;
                            tell_written(at, size);
                            return true;
                        });
}

std::uintptr_t page_size() {
    static const auto size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    return size;
}

// The kernel has no copy that is atomic with the CPU, so ask whether the page can be written now.
bool can_write(std::byte* at) {
    std::byte* const page = at - reinterpret_cast<std::uintptr_t>(at) % page_size();
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14; older ones refuse.
    return madvise(page, page_size(), kPopulateWrite) == 0;
}

// Set in a failing access only. The words that programs get are made in the same call.
constinit thread_local std::uintptr_t unmapped_at = 0;

[[gnu::noinline, gnu::cold]] bool note_unmapped(const std::byte* at) {
    unmapped_at = reinterpret_cast<std::uintptr_t>(at);
    return false;
}

// Atomics are rare enough to go without the split that copies have.
template <class Access>
[[gnu::noinline, gnu::cold]] bool touch_word_slowly(std::byte* at, Access access) {
    if (!touch_slowly(access, [&] { return can_write(at) && access(); })) return false;
    tell_written(at, 8);
    return true;
}

template <class Access>
bool touch_word(std::byte* at, Access access) {
    const bool good = guard_is_direct() ? access() : touch_word_slowly(at, access);
    return good || note_unmapped(at);
}

}  // namespace

std::uintptr_t last_unmapped() noexcept {
    return unmapped_at;
}

bool read_memory(Slice from, ByteSpan into) noexcept {
    ASSERT(from.length == into.size());
    if (into.empty()) return true;
    if (from.null_region()) {
        std::memset(into.data(), 0, into.size());
        return true;
    }
    if (guard_is_direct()) [[likely]]
        return read_guarded(from.base, into.data(), into.size()) || note_unmapped(from.base);
    return read_slowly(from.base, into.data(), into.size()) || note_unmapped(from.base);
}

bool write_memory(Slice to, ByteView from) noexcept {
    ASSERT(to.length == from.size());
    if (from.empty() || to.null_region()) return true;
    if (guard_is_direct()) [[likely]]
        return write_guarded(to.base, from.data(), from.size()) || note_unmapped(to.base);
    return write_slowly(to.base, from.data(), from.size()) || note_unmapped(to.base);
}

std::optional<std::uint64_t> compare_swap(Slice word, std::uint64_t compare,
                                          std::uint64_t swap) noexcept {
    ASSERT(is_aligned_word(word));
    if (word.null_region()) return 0;
    std::uint64_t before = 0;
    const auto access = [&] { return word::compare_swap(word.base, compare, swap, &before); };
    if (!touch_word(word.base, access)) return std::nullopt;
    return before;
}

std::optional<std::uint64_t> fetch_add(Slice word, std::uint64_t add) noexcept {
    ASSERT(is_aligned_word(word));
    if (word.null_region()) return 0;
    std::uint64_t before = 0;
    if (!touch_word(word.base, [&] { return word::fetch_add(word.base, add, &before); }))
        return std::nullopt;
    return before;
}

bool atomic_write(Slice word, std::uint64_t value) noexcept {
    ASSERT(is_aligned_word(word));
    if (word.null_region()) return true;
    return touch_word(word.base, [&] { return word::store_release(word.base, value); });
}

void order_before_read() noexcept {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"  // It orders assembly, which TSan does not look at anyway.
#endif
    std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

bool probe_memory(void* address, std::uint64_t length, bool writable) noexcept {
    ASSERT(length > 0);
    const Unreported probes_pages;
    const std::uintptr_t page = page_size();
    const auto first = reinterpret_cast<std::uintptr_t>(address);
    const std::uintptr_t last = first + length - 1;
    const std::uintptr_t first_page = first / page;
    const std::uintptr_t pages = last / page - first_page + 1;
    // MS_ASYNC does nothing on Linux but to walk the mappings, and to fail with ENOMEM at a hole.
    if (msync(reinterpret_cast<void*>(first_page * page), pages * page, MS_ASYNC) != 0)
        return false;

    constexpr std::uintptr_t kProbes = 16;
    const std::uintptr_t probes = std::min(pages, kProbes);
    for (std::uintptr_t i = 0; i < probes; ++i) {
        // Spread evenly: i = 0 is the first page, i = probes - 1 the last.
        const std::uintptr_t skip = probes == 1 ? 0 : (pages - 1) / (probes - 1) * i;
        const std::uintptr_t index = i == probes - 1 ? pages - 1 : skip;
        auto* const at = reinterpret_cast<std::byte*>((first_page + index) * page);
        const Slice word{at, 8};
        std::byte sample[8];
        // Adding zero changes nothing, but only writable memory lets it happen.
        if (writable ? !fetch_add(word, 0) : !read_memory(word, sample)) return false;
    }
    return true;
}

}  // namespace feroce::mem
