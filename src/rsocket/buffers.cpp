#include "rsocket/buffers.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace feroce::rsockets {

Result<std::unique_ptr<Buffers>> Buffers::create(ibv_pd* pd, const Sizes& sizes) {
    std::unique_ptr<Buffers> made(new Buffers);
    constexpr int kWritten = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    made->mappings_ = sizes.mappings;
    Result<void> done = made->fill(made->send_, pd, sizes.send_ring, IBV_ACCESS_LOCAL_WRITE);
    if (done) done = made->fill(made->receive_, pd, sizes.receive_ring, kWritten);
    if (done) done = made->fill(made->targets_, pd, targets_size(sizes.mappings), kWritten);
    if (!done) return done.error();
    return made;
}

Buffers::~Buffers() {
    drop(send_);
    drop(receive_);
    drop(targets_);
}

Result<void> Buffers::fill(Part& part, ibv_pd* pd, std::size_t size, int access) {
    void* memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error{ENOMEM, "no memory for a stream's buffers"};
    part.bytes = {static_cast<std::byte*>(memory), size};
    part.region = ibv_reg_mr(pd, memory, size, access);
    if (part.region == nullptr) return Error{errno, "a stream's buffer cannot be registered"};
    return {};
}

void Buffers::drop(Part& part) {
    if (part.region != nullptr) ibv_dereg_mr(part.region);
    if (!part.bytes.empty()) ::munmap(part.bytes.data(), part.bytes.size());
}

void Buffers::describe(StreamConfig& config) const {
    config.send_ring = send_.bytes;
    config.receive_ring = receive_.bytes;
    config.receive_address = reinterpret_cast<std::uintptr_t>(receive_.bytes.data());
    config.receive_key = receive_.region->rkey;
    config.targets = targets_.bytes;
    config.targets_address = reinterpret_cast<std::uintptr_t>(targets_.bytes.data());
    config.targets_key = targets_.region->rkey;
    config.mappings = mappings_;
}

}  // namespace feroce::rsockets
