// See io_ring.hpp.
#include "block/io_ring.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>

namespace feroce::block {

namespace {

constexpr unsigned kEntries = 1024;

void prepare(io_uring_sqe& entry, const FileCall& call) {
    const auto length = static_cast<unsigned>(call.length);
    switch (call.what) {
        case FileCall::What::Sync:
            return io_uring_prep_fsync(&entry, call.fd, IORING_FSYNC_DATASYNC);
        case FileCall::What::Read:
            return io_uring_prep_read(&entry, call.fd, call.data, length, call.offset);
        case FileCall::What::Write:
            io_uring_prep_write(&entry, call.fd, call.data, length, call.offset);
            entry.rw_flags = call.flags;
            return;
        case FileCall::What::Allocate:
            return io_uring_prep_fallocate(&entry, call.fd, call.flags,
                                           static_cast<off_t>(call.offset),
                                           static_cast<off_t>(call.length));
    }
}

}  // namespace

std::shared_ptr<IoRing> IoRing::of(rdma::Loop& loop) {
    // A loop belongs to one thread, and so do its back ends.
    thread_local std::map<rdma::Loop*, std::weak_ptr<IoRing>> rings;
    std::erase_if(rings, [](const auto& entry) { return entry.second.expired(); });
    if (auto ring = rings[&loop].lock()) return ring;
    auto ring = std::make_shared<IoRing>(loop);
    if (!ring->start()) return nullptr;
    rings[&loop] = ring;
    return ring;
}

bool IoRing::start() {
    if (io_uring_queue_init(kEntries, &ring_, 0) != 0) return false;
    started_ = true;
    event_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event_fd_ < 0 || io_uring_register_eventfd(&ring_, event_fd_) != 0) return false;
    loop_.attach(*this);
    return true;
}

IoRing::~IoRing() {
    if (started_) loop_.detach(*this);
    if (started_) io_uring_queue_exit(&ring_);
    if (event_fd_ >= 0) ::close(event_fd_);
}

void IoRing::submit(BackendRequest& request) {
    if (instead_ != nullptr) return instead_->submit(request);
    waiting_.push_back(request);
}

void IoRing::hand_over() {
    while (!waiting_.empty()) {
        io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
        if (entry == nullptr) break;  // All are with the kernel, or wait for it below.
        BackendRequest& request = *waiting_.pop_front();
        prepare(*entry, caller_of(request).next_call(request));
        io_uring_sqe_set_data(entry, &request);
        prepared_.push_back(request);
    }
    if (prepared_.empty()) return;
    const int taken = io_uring_submit(&ring_);
    for (int i = 0; i < taken; ++i) prepared_.pop_front();
    // Those pass: memory is short, or completions must be taken first.
    const bool passes = taken >= 0 || taken == -EAGAIN || taken == -EBUSY || taken == -EINTR;
    if (!passes) give_up();
}

void IoRing::give_up() {
    instead_ = CallPool::of(loop_);
    while (BackendRequest* const request = prepared_.pop_front()) instead_->submit(*request);
    while (BackendRequest* const request = waiting_.pop_front()) instead_->submit(*request);
}

bool IoRing::poll() {
    if (instead_ == nullptr) hand_over();
    if (polling_) return false;  // Called again by a request's owner below.
    polling_ = true;
    std::array<io_uring_cqe*, 64> completions;
    const unsigned count = io_uring_peek_batch_cqe(&ring_, completions.data(), completions.size());
    for (unsigned i = 0; i < count; ++i) {
        auto& request = *static_cast<BackendRequest*>(io_uring_cqe_get_data(completions[i]));
        const int result = completions[i]->res;
        caller_of(request).called(request, result);
    }
    io_uring_cq_advance(&ring_, count);
    polling_ = false;
    // What the kernel has not taken must not wait for news from it.
    return count > 0 || !prepared_.empty() || !waiting_.empty();
}

void IoRing::take_events() {
    std::uint64_t events = 0;
    while (::read(event_fd_, &events, sizeof events) > 0) continue;
}

}  // namespace feroce::block
