// See queue.hpp.
#include "block/ublk/queue.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/assert.hpp"
#include "block/ublk/requests.hpp"

namespace feroce::block::ublk {
namespace {

rdma::Error failure(const std::string& what, int code) {
    return {code, what + ": " + std::strerror(code)};
}

}  // namespace

rdma::Result<std::unique_ptr<Queue>> Queue::open(rdma::Loop& loop, Disk disk, std::uint32_t device,
                                                 std::uint16_t depth, std::uint32_t request_bytes) {
    std::unique_ptr<Queue> out(new Queue(loop, std::move(disk), depth, request_bytes));
    auto prepared = out->prepare(device);
    if (!prepared) return prepared.error();
    for (std::uint16_t tag = 0; tag < depth; ++tag) out->hand_over(tag, kFetch, 0);
    loop.attach(*out);
    out->attached_ = true;
    return out;
}

Queue::Queue(rdma::Loop& loop, Disk disk, std::uint16_t depth, std::uint32_t request_bytes)
    : loop_(loop),
      disk_(std::move(disk)),
      depth_(depth),
      request_bytes_(request_bytes),
      tasks_(loop) {}

rdma::Result<> Queue::prepare(std::uint32_t device) {
    auto memory = disk_.session().allocate(std::size_t{depth_} * request_bytes_);
    if (!memory) return memory.error();
    memory_ = *std::move(memory);
    const std::string path = "/dev/ublkc" + std::to_string(device);
    device_fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (device_fd_ < 0) return failure(path, errno);
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    mapped_ = (depth_ * sizeof(Request) + page - 1) / page * page;
    void* const view =
        ::mmap(nullptr, mapped_, PROT_READ, MAP_SHARED | MAP_POPULATE, device_fd_, 0);
    if (view == MAP_FAILED) return failure(path, errno);
    requests_ = static_cast<const Request*>(view);
    if (const int status = io_uring_queue_init(depth_, &ring_, 0); status != 0)
        return failure("no io_uring for a ublk device", -status);
    has_ring_ = true;
    event_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (event_fd_ < 0 || io_uring_register_eventfd(&ring_, event_fd_) != 0)
        return failure("no descriptor for a ublk device", errno);
    return {};
}

Queue::~Queue() {
    if (attached_) loop_.detach(*this);
    if (has_ring_) io_uring_queue_exit(&ring_);
    if (event_fd_ >= 0) ::close(event_fd_);
    if (requests_ != nullptr) ::munmap(const_cast<Request*>(requests_), mapped_);
    if (device_fd_ >= 0) ::close(device_fd_);
}

std::span<std::byte> Queue::buffer(std::uint16_t tag) const {
    return memory_->bytes().subspan(std::size_t{tag} * request_bytes_, request_bytes_);
}

// There is an entry for each tag, and a tag has one command at a time.
void Queue::hand_over(std::uint16_t tag, std::uint32_t command, int result) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    ASSERT(entry != nullptr);
    std::memset(entry, 0, sizeof *entry);
    entry->opcode = kUringCommand;
    entry->fd = device_fd_;
    entry->off = command;
    entry->user_data = tag;
    QueueCommand what;
    what.tag = tag;
    what.result = result;
    what.buffer = reinterpret_cast<std::uintptr_t>(buffer(tag).data());
    std::memcpy(reinterpret_cast<char*>(entry) + kCommandOffset, &what, sizeof what);
    ++unsent_;
    ++with_kernel_;
}

rdma::Task<void> Queue::serve(std::uint16_t tag) {
    int result = -EIO;
    try {
        result = co_await perform(disk_, requests_[tag], buffer(tag));
    } catch (const std::bad_alloc&) {
        result = -ENOMEM;
    }
    hand_over(tag, kCommitAndFetch, result);
}

void Queue::begin(std::uint16_t tag) {
    try {
        tasks_.spawn(serve(tag));
    } catch (const std::bad_alloc&) {
        hand_over(tag, kCommitAndFetch, -ENOMEM);
    }
}

bool Queue::poll() {
    if (unsent_ > 0) {
        // What it does not take now it gets again in the next round.
        const int taken = io_uring_submit(&ring_);
        if (taken > 0) unsent_ -= static_cast<unsigned>(taken);
    }
    if (polling_) return false;  // Called again by what a request waits for.
    polling_ = true;
    std::array<io_uring_cqe*, 64> completions;
    const unsigned count = io_uring_peek_batch_cqe(&ring_, completions.data(), completions.size());
    for (unsigned i = 0; i < count; ++i) {
        --with_kernel_;
        // Any failure means that the device ends: nothing more comes by this tag.
        if (completions[i]->res == 0) begin(static_cast<std::uint16_t>(completions[i]->user_data));
    }
    io_uring_cq_advance(&ring_, count);
    polling_ = false;
    if (count > 0 && over()) loop_.stop();
    return count > 0 || unsent_ > 0;
}

void Queue::take_events() {
    std::uint64_t events = 0;
    while (::read(event_fd_, &events, sizeof events) > 0) continue;
}

}  // namespace feroce::block::ublk
