// See control.hpp.
#include "block/ublk/control.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.hpp"

namespace feroce::block::ublk {
namespace {

template <class Value>
std::uint64_t address_of(Value& value) {
    return reinterpret_cast<std::uintptr_t>(&value);
}

rdma::Error failure(const char* what, int code) {
    return {code, std::string("ublk: ") + what + ": " + std::strerror(code)};
}

// Commands of the control device need long entries. An older liburing knows none.
bool make_ring(io_uring& ring) {
#ifdef IORING_SETUP_SQE128
    return io_uring_queue_init(4, &ring, IORING_SETUP_SQE128) == 0;
#else
    (void)ring;
    return false;
#endif
}

}  // namespace

rdma::Result<std::unique_ptr<Control>> Control::open() {
    std::unique_ptr<Control> out(new Control);
    out->fd_ = ::open("/dev/ublk-control", O_RDWR | O_CLOEXEC);
    if (out->fd_ < 0) return failure("/dev/ublk-control", errno);
    out->has_ring_ = make_ring(out->ring_);
    if (!out->has_ring_) return failure("no io_uring for it", EOPNOTSUPP);
    std::uint64_t features = 0;
    ControlCommand command;
    command.address = address_of(features);
    command.length = sizeof features;
    auto known = out->call("the kernel's is too old", kFeatures, command);
    if (!known) return known.error();
    return out;
}

Control::~Control() {
    if (has_ring_) io_uring_queue_exit(&ring_);
    if (fd_ >= 0) ::close(fd_);
}

rdma::Result<> Control::call(const char* what, std::uint32_t number,
                             const ControlCommand& command) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    ASSERT(entry != nullptr);  // One command at a time.
    std::memset(entry, 0, kCommandOffset);
    entry->opcode = kUringCommand;
    entry->fd = fd_;
    entry->off = number;
    std::memcpy(reinterpret_cast<char*>(entry) + kCommandOffset, &command, sizeof command);
    int status = 0;
    do {
        status = io_uring_submit(&ring_);
    } while (status == -EINTR || status == -EAGAIN);
    if (status < 0) return failure(what, -status);
    io_uring_cqe* done = nullptr;
    do {
        status = io_uring_wait_cqe(&ring_, &done);
    } while (status == -EINTR || status == -EAGAIN);
    if (status < 0) return failure(what, -status);
    status = done->res;
    io_uring_cqe_seen(&ring_, done);
    if (status < 0) return failure(what, -status);
    return {};
}

rdma::Result<std::uint32_t> Control::add(std::uint16_t depth, std::uint32_t request_bytes) {
    DeviceFacts facts;
    facts.depth = depth;
    facts.request_bytes = request_bytes;
    facts.device = ~0u;  // The next that is free.
    facts.mark = kOurMark;
    ControlCommand command;
    command.device = facts.device;
    command.address = address_of(facts);
    command.length = sizeof facts;
    auto added = call("no device can be added", kAdd, command);
    if (!added) return added.error();
    return facts.device;
}

rdma::Result<> Control::set_params(std::uint32_t device, Params params) {
    ControlCommand command;
    command.device = device;
    command.address = address_of(params);
    command.length = sizeof params;
    return call("the kernel does not take such a disk", kSetParams, command);
}

rdma::Result<> Control::start(std::uint32_t device) {
    ControlCommand command;
    command.device = device;
    command.data = static_cast<std::uint64_t>(::getpid());
    return call("the device does not start", kStart, command);
}

rdma::Result<> Control::stop(std::uint32_t device) {
    ControlCommand command;
    command.device = device;
    return call("the device cannot be stopped", kStop, command);
}

rdma::Result<> Control::remove(std::uint32_t device) {
    ControlCommand command;
    command.device = device;
    return call("the device cannot be removed", kRemove, command);
}

rdma::Result<DeviceFacts> Control::facts(std::uint32_t device) {
    DeviceFacts facts;
    ControlCommand command;
    command.device = device;
    command.address = address_of(facts);
    command.length = sizeof facts;
    auto asked = call("there is no such device", kInfo, command);
    if (!asked) return asked.error();
    return facts;
}

}  // namespace feroce::block::ublk
