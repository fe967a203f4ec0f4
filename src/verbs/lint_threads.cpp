#include "verbs/lint_threads.hpp"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace feroce::verbs {
namespace {

constexpr timespec kLonger{0, 200'000};

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

}  // namespace

lint::Thread lint_thread() {
    return static_cast<lint::Thread>(::syscall(SYS_gettid));
}

// Not by the C library: its function is a cancellation point.
void linger() {
    const int error = errno;
    (void)::syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &kLonger, nullptr);
    errno = error;
}

// Only fields that the program has to fill in: others may never have been written.
template <class Wr>
std::uint64_t print_of(const Wr* list, std::size_t count) {
    std::uint64_t hash = 1;
    for (; list != nullptr && count > 0; list = list->next, --count) {
        add_word(hash, list->wr_id);
        add_word(hash, reinterpret_cast<std::uintptr_t>(list->sg_list));
        add_word(hash, static_cast<std::uint64_t>(list->num_sge));
        add_operation(hash, *list);
        if (list->sg_list == nullptr) continue;
        const int sges = std::min(list->num_sge, static_cast<int>(limits::kSges));
        for (int i = 0; i < sges; ++i) {
            add_word(hash, list->sg_list[i].addr);
            add_word(hash, list->sg_list[i].length);
            add_word(hash, list->sg_list[i].lkey);
        }
    }
    return hash;
}

template std::uint64_t print_of(const ibv_send_wr* list, std::size_t count);
template std::uint64_t print_of(const ibv_recv_wr* list, std::size_t count);

}  // namespace feroce::verbs
