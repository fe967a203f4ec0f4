#include "verbs/lint_threads.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mem/touch.hpp"

namespace feroce::verbs {
namespace {

constexpr timespec kLonger{0, 200'000};
// Requests of a list after these are not watched.
constexpr std::size_t kWatchedMax = 1024;

// Where a work request and its SGEs were when the list was first read.
template <class Wr>
struct Watched {
    const Wr* wr;
    const ibv_sge* sges;
    std::size_t sge_count;
};

void add_word(std::uint64_t& hash, std::uint64_t word) {
    hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
    hash ^= hash >> 29;
}

void add_operation(std::uint64_t& hash, const ibv_send_wr& wr) {
    add_word(hash, static_cast<std::uint64_t>(wr.opcode));
    add_word(hash, wr.send_flags);
    if (wr.opcode != IBV_WR_RDMA_WRITE && wr.opcode != IBV_WR_RDMA_READ) return;
    add_word(hash, wr.wr.rdma.remote_addr);
    add_word(hash, wr.wr.rdma.rkey);
}
void add_operation(std::uint64_t&, const ibv_recv_wr&) {}

// A list that two threads use may be gone already.
template <class Value>
std::optional<Value> read_value(const Value* at) {
    auto* from = reinterpret_cast<std::byte*>(const_cast<Value*>(at));
    Value out;
    if (!mem::read_memory({from, sizeof out}, std::as_writable_bytes(std::span(&out, 1))))
        return std::nullopt;
    return out;
}

template <class Wr>
std::vector<Watched<Wr>> requests_in(const Wr* list) {
    std::vector<Watched<Wr>> out;
    for (; list != nullptr && out.size() < kWatchedMax; list = list->next) {
        const int sges = std::clamp(list->num_sge, 0, static_cast<int>(limits::kSges));
        const bool has_sges = list->sg_list != nullptr;
        out.push_back({list, list->sg_list, has_sges ? static_cast<std::size_t>(sges) : 0});
    }
    return out;
}

void add_sge(std::uint64_t& hash, const ibv_sge& sge) {
    add_word(hash, sge.addr);
    add_word(hash, sge.length);
    add_word(hash, sge.lkey);
}

// What they say, as far as the device reads it in any request. Only fields that the program has to
// fill in: others may never have been written. None if they cannot be read.
template <class Wr>
std::optional<std::uint64_t> print_of(std::span<const Watched<Wr>> requests) {
    std::uint64_t hash = 1;
    for (const Watched<Wr>& watched : requests) {
        const std::optional<Wr> wr = read_value(watched.wr);
        if (!wr) return std::nullopt;
        add_word(hash, wr->wr_id);
        add_word(hash, reinterpret_cast<std::uintptr_t>(wr->next));
        add_word(hash, reinterpret_cast<std::uintptr_t>(wr->sg_list));
        add_word(hash, static_cast<std::uint64_t>(wr->num_sge));
        add_operation(hash, *wr);
        for (std::size_t i = 0; i < watched.sge_count; ++i) {
            const std::optional<ibv_sge> sge = read_value(watched.sges + i);
            if (!sge) return std::nullopt;
            add_sge(hash, *sge);
        }
    }
    return hash;
}

}  // namespace

// Without a system call: every post asks. A later thread may have the number of one that is over.
lint::Thread lint_thread() {
    return static_cast<lint::Thread>(::pthread_self());
}

// Not by the C library: its function is a cancellation point.
void linger() {
    const int error = errno;
    (void)::syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &kLonger, nullptr);
    errno = error;
}

template <class Wr>
void watch_list(Lint& lint, const Wr* list, const char* call) {
    bool watched = false;
    lint.tell_quickly([&](lint::Linter& linter) { watched = linter.shares(list, lint_thread()); });
    if (!watched) return;
    std::vector<Watched<Wr>> requests;
    {
        const Uncancelled part;
        if (!with_memory([&] { requests = requests_in(list); })) return;
    }
    const auto before = print_of<Wr>(requests);
    linger();
    if (print_of<Wr>(requests) == before) return;
    lint.tell(
        [&](lint::Linter& linter, lint::Place place) { linter.list_changed(call, list, place); });
}

template void watch_list(Lint& lint, const ibv_send_wr* list, const char* call);
template void watch_list(Lint& lint, const ibv_recv_wr* list, const char* call);

}  // namespace feroce::verbs
