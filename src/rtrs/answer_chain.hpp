// AnswerChain: the work requests of an answer to a read or write, in their order: data, the
// invalidation of the client's key, the response. A window's bind is posted by itself.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "rtrs/channel.hpp"
#include "rtrs/immediate.hpp"
#include "rtrs/request_header.hpp"

namespace feroce::rtrs {

class AnswerChain {
public:
    void add_data(std::uint64_t from, std::uint32_t key, const RemoteSegment& to) {
        ibv_send_wr& wr = add(IBV_WR_RDMA_WRITE, {from, to.length, key});
        wr.wr.rdma.remote_addr = to.address;
        wr.wr.rdma.rkey = to.key;
    }
    // Takes the client's key to its own memory back.
    void add_invalidate(std::uint32_t key) { add(IBV_WR_SEND_WITH_INV).invalidate_rkey = key; }
    // The response: by the last of the data if `joined`, else behind all.
    void finish_with(Immediate immediate, bool joined) {
        ASSERT(!joined || (count_ > 0 && chain_[count_ - 1].opcode == IBV_WR_RDMA_WRITE));
        ibv_send_wr& wr = joined ? chain_[count_ - 1] : add(IBV_WR_RDMA_WRITE_WITH_IMM);
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = htobe32(immediate.raw());
    }
    // The response with something beside it. A key of 0: it is copied when it is posted.
    void finish_with(Immediate immediate, ByteView beside, std::uint32_t key) {
        ibv_send_wr& wr = add(IBV_WR_SEND_WITH_IMM,
                              {address_of(beside), static_cast<std::uint32_t>(beside.size()), key});
        wr.imm_data = htobe32(immediate.raw());
        if (key == 0) wr.send_flags = IBV_SEND_INLINE;
    }
    std::span<ibv_send_wr> all() { return std::span(chain_).first(count_); }

private:
    static constexpr std::size_t kMost = kMaxReadSegments + 2;

    ibv_send_wr& add(ibv_wr_opcode opcode) {
        ASSERT(count_ < kMost);
        ibv_send_wr& wr = chain_[count_++];
        wr = {};
        wr.opcode = opcode;
        return wr;
    }
    ibv_send_wr& add(ibv_wr_opcode opcode, const ibv_sge& memory) {
        ibv_send_wr& wr = add(opcode);
        wr.sg_list = &(sges_[count_ - 1] = memory);
        wr.num_sge = 1;
        return wr;
    }

    // Cleared one by one as they are used: most answers are one of them.
    std::array<ibv_send_wr, kMost> chain_;
    std::array<ibv_sge, kMost> sges_;
    std::size_t count_ = 0;
};

}  // namespace feroce::rtrs
