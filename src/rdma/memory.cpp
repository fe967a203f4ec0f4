#include "feroce/memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "rdma/failure.hpp"

namespace feroce::rdma {
namespace {

constexpr std::size_t kAlignment = 4096;  // Whole pages: a neighbour's data is not registered too.

int flags_of(Access access) {
    return static_cast<int>(access) | IBV_ACCESS_LOCAL_WRITE;
}

}  // namespace

Result<ProtectionDomain> ProtectionDomain::create(ibv_context* device) {
    ibv_pd* pd = ::ibv_alloc_pd(device);
    if (pd == nullptr) return failure("no protection domain could be made");
    return ProtectionDomain(pd);
}

Result<MemoryRegion> MemoryRegion::create(ibv_pd* domain, std::span<std::byte> memory,
                                          Access access) {
    const int flags =
        flags_of(access);  // A variable: ibv_reg_mr is a macro that asks for constants.
    ibv_mr* mr = ::ibv_reg_mr(domain, memory.data(), memory.size(), flags);
    if (mr == nullptr)
        return failure("memory of " + std::to_string(memory.size()) +
                       " bytes could not be registered");
    return MemoryRegion(mr);
}

LocalRegion MemoryRegion::local() const {
    const std::size_t most = std::numeric_limits<std::uint32_t>::max();
    return {mr_->addr, static_cast<std::uint32_t>(std::min(mr_->length, most)), mr_->lkey};
}

RemoteRegion MemoryRegion::remote() const {
    return {reinterpret_cast<std::uint64_t>(mr_->addr), mr_->length, mr_->rkey, 0};
}

void Buffer::GiveBack::operator()(std::byte* memory) const {
    to->deallocate(memory, size, kAlignment);
}

Result<std::byte*> allocate(std::pmr::memory_resource& memory, std::size_t bytes,
                            std::size_t alignment) {
    try {
        return static_cast<std::byte*>(memory.allocate(bytes, alignment));
    } catch (const std::bad_alloc&) {
        return Error(ENOMEM, "there is no memory of " + std::to_string(bytes) + " bytes");
    }
}

Result<Buffer> Buffer::create(ibv_pd* domain, std::pmr::memory_resource& memory, std::size_t bytes,
                              Access access) {
    if (bytes == 0) return Error(EINVAL, "a buffer needs at least one byte");
    const Result<std::byte*> start = allocate(memory, bytes, kAlignment);
    if (!start) return start.error();
    Memory owned(*start, {&memory, bytes});
    std::memset(*start, 0, bytes);
    Result<MemoryRegion> region = MemoryRegion::create(domain, {*start, bytes}, access);
    if (!region) return region.error();
    return Buffer(std::move(owned), *std::move(region));
}

Result<MemoryWindow> MemoryWindow::create(ibv_pd* domain) {
    ibv_mw* mw = ::ibv_alloc_mw(domain, IBV_MW_TYPE_1);
    if (mw == nullptr) return failure("no memory window could be made");
    return MemoryWindow(mw);
}

Result<> MemoryWindow::bind(ibv_qp* through, const MemoryRegion& region, LocalRegion part,
                            Access access, Operation* done) {
    ibv_mw_bind wanted{};
    wanted.wr_id = to_wr_id(done);
    wanted.send_flags = done != nullptr ? IBV_SEND_SIGNALED : 0;
    wanted.bind_info = {region.raw(), part.raw().addr, part.size(), static_cast<unsigned>(access)};
    if (const int code = ::ibv_bind_mw(through, mw_.get(), &wanted); code != 0)
        return failure("a memory window could not be bound", code);
    address_ = part.raw().addr;
    size_ = part.size();
    return {};
}

}  // namespace feroce::rdma
