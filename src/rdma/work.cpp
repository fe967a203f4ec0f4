#include "feroce/work.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <string>

namespace feroce::rdma {
namespace {

constexpr std::uint64_t kAtomicBytes = 8;

bool is_atomic(const ibv_send_wr& wr) {
    return wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

}  // namespace

Work::Work(ibv_wr_opcode opcode, const Regions& regions) : regions_(regions) {
    wr_.opcode = opcode;
}

Work Work::send(const Regions& from) {
    return {IBV_WR_SEND, from};
}

Work Work::send_imm(const Regions& from, std::uint32_t immediate) {
    Work work(IBV_WR_SEND_WITH_IMM, from);
    work.wr_.imm_data = htonl(immediate);
    return work;
}

Work Work::send_invalidate(const Regions& from, std::uint32_t rkey) {
    Work work(IBV_WR_SEND_WITH_INV, from);
    work.wr_.invalidate_rkey = rkey;
    return work;
}

Work Work::write(const RemoteRegion& to, const Regions& from) {
    Work work(IBV_WR_RDMA_WRITE, from);
    work.wr_.wr.rdma.remote_addr = to.address;
    work.wr_.wr.rdma.rkey = to.rkey;
    work.remote_size_ = to.size;
    return work;
}

Work Work::write_imm(const RemoteRegion& to, const Regions& from, std::uint32_t immediate) {
    Work work = write(to, from);
    work.wr_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    work.wr_.imm_data = htonl(immediate);
    return work;
}

Work Work::read(const Regions& to, const RemoteRegion& from) {
    Work work = write(from, to);
    work.wr_.opcode = IBV_WR_RDMA_READ;
    return work;
}

Work Work::compare_swap(const Regions& old, const RemoteRegion& word, std::uint64_t expected,
                        std::uint64_t desired) {
    Work work(IBV_WR_ATOMIC_CMP_AND_SWP, old);
    work.wr_.wr.atomic.remote_addr = word.address;
    work.wr_.wr.atomic.rkey = word.rkey;
    work.wr_.wr.atomic.compare_add = expected;
    work.wr_.wr.atomic.swap = desired;
    work.remote_size_ = word.size;
    return work;
}

Work Work::fetch_add(const Regions& old, const RemoteRegion& word, std::uint64_t add) {
    Work work = compare_swap(old, word, add, 0);
    work.wr_.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    return work;
}

Work Work::local_invalidate(std::uint32_t rkey) {
    Work work(IBV_WR_LOCAL_INV, Regions(std::span<const LocalRegion>()));
    work.wr_.invalidate_rkey = rkey;
    return work;
}

Work& Work::signal(Operation& operation) {
    wr_.send_flags |= IBV_SEND_SIGNALED;
    return watch(operation);
}

Work& Work::watch(Operation& operation) {
    wr_.wr_id = to_wr_id(&operation);
    return *this;
}

Work& Work::fence() {
    wr_.send_flags |= IBV_SEND_FENCE;
    return *this;
}

Work& Work::solicited() {
    wr_.send_flags |= IBV_SEND_SOLICITED;
    return *this;
}

Work& Work::inline_data() {
    wr_.send_flags |= IBV_SEND_INLINE;
    return *this;
}

Result<> Work::check() const {
    const std::uint64_t bytes = regions_.total();
    if (bytes > remote_size_)
        return Error(EINVAL, "the region of the peer has " + std::to_string(remote_size_) +
                                 " bytes, the local ones have " + std::to_string(bytes) +
                                 "; use subregions of equal size");
    if (!is_atomic(wr_)) return {};
    if (bytes != kAtomicBytes || remote_size_ < kAtomicBytes)
        return Error(EINVAL, "an atomic works on eight bytes at both ends");
    if (wr_.wr.atomic.remote_addr % kAtomicBytes != 0)
        return Error(EINVAL, "an atomic needs an address of the peer that is a multiple of eight");
    return {};
}

void Work::prepare(Work* next) {
    wr_.sg_list = regions_.sges();
    wr_.num_sge = regions_.count();
    wr_.next = next == nullptr ? nullptr : &next->wr_;
}

}  // namespace feroce::rdma
