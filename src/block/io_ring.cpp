// See io_ring.hpp.
#include "block/io_ring.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <map>

#include "base/assert.hpp"

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
    loop_.detach(*this);
    if (started_) io_uring_queue_exit(&ring_);
    if (event_fd_ >= 0) ::close(event_fd_);
}

void IoRing::submit(BackendRequest& request, const FileCall& call) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
        io_uring_submit(&ring_);
        prepared_ = 0;
        entry = io_uring_get_sqe(&ring_);
        // The kernel takes entries off the queue even if it cannot begin with them.
        ASSERT(entry != nullptr);
    }
    prepare(*entry, call);
    io_uring_sqe_set_data(entry, &request);
    ++prepared_;
}

bool IoRing::poll() {
    if (prepared_ > 0) {
        prepared_ = 0;
        io_uring_submit(&ring_);
    }
    if (polling_) return false;  // Called again by who is told below.
    polling_ = true;
    std::array<io_uring_cqe*, 64> completions;
    const unsigned count = io_uring_peek_batch_cqe(&ring_, completions.data(), completions.size());
    for (unsigned i = 0; i < count; ++i) {
        auto& request = *static_cast<BackendRequest*>(io_uring_cqe_get_data(completions[i]));
        const int result = completions[i]->res;
        static_cast<FileCaller*>(request.owner)->called(request, result);
    }
    io_uring_cq_advance(&ring_, count);
    polling_ = false;
    return count > 0;
}

void IoRing::take_events() {
    std::uint64_t events = 0;
    while (::read(event_fd_, &events, sizeof events) > 0) continue;
}

}  // namespace feroce::block
