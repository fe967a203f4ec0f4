// Work requests in the lint's form: what is needed to follow them and to judge them when posted.
#include <arpa/inet.h>

#include <algorithm>
#include <optional>

#include "base/scratch.hpp"
#include "verbs/lint.hpp"
#include "verbs/lint_marks.hpp"

namespace feroce::verbs {
namespace {

using transport::SendOp;

lint::Op lint_op(ibv_wr_opcode opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return lint::Op::Write;
        case IBV_WR_RDMA_READ:
            return lint::Op::Read;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return lint::Op::Atomic;
        case IBV_WR_LOCAL_INV:
        case IBV_WR_BIND_MW:
            return lint::Op::Local;
        default:
            return lint::Op::Send;
    }
}

lint::Op lint_op(SendOp op) {
    switch (op) {
        case SendOp::Write:
        case SendOp::WriteImmediate:
            return lint::Op::Write;
        case SendOp::Read:
            return lint::Op::Read;
        case SendOp::CompareSwap:
        case SendOp::FetchAdd:
            return lint::Op::Atomic;
        case SendOp::AtomicWrite:
        case SendOp::Flush:
        case SendOp::LocalInvalidate:
        case SendOp::BindWindow:
            return lint::Op::Local;  // No buffer of the program is read.
        default:
            return lint::Op::Send;
    }
}

lint::SgeFault fault_of(mem::Fault fault) {
    switch (fault) {
        case mem::Fault::None:
        case mem::Fault::Far:       // Allowed: a GPU's memory.
        case mem::Fault::Unmapped:  // The key is good; the completion will tell.
            return lint::SgeFault::None;
        case mem::Fault::WrongPd:
            return lint::SgeFault::WrongPd;
        case mem::Fault::NoPermission:
            return lint::SgeFault::NotWritable;
        case mem::Fault::OutOfBounds:
            return lint::SgeFault::OutOfBounds;
        default:
            return lint::SgeFault::NoSuchKey;
    }
}

// A list that the device would refuse is not followed.
template <class Wr>
std::span<const ibv_sge> sges_of(const Wr& wr) {
    if (wr.sg_list == nullptr || wr.num_sge < 0) return {};
    if (static_cast<std::uint32_t>(wr.num_sge) > limits::kSges) return {};
    return {wr.sg_list, static_cast<std::size_t>(wr.num_sge)};
}

using LintScratch = Scratch<mem::Sge, limits::kSges>;

std::span<const mem::Sge> lint_sges(std::span<const ibv_sge> list, LintScratch& scratch) {
    const auto out = scratch.span();
    for (std::size_t i = 0; i < list.size(); ++i)
        out[i] = {list[i].addr, list[i].length, LKey{list[i].lkey}};
    return out.first(list.size());
}

bool carries_immediate(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool numbers_marked(const ibv_send_wr& wr) {
    switch (lint_op(wr.opcode)) {
        case lint::Op::Write:
        case lint::Op::Read:
            return is_marked_address(wr.wr.rdma.remote_addr) || is_marked_key(wr.wr.rdma.rkey);
        case lint::Op::Atomic:
            return is_marked_address(wr.wr.atomic.remote_addr) ||
                   is_marked_key(wr.wr.atomic.rkey) || is_marked_word(wr.wr.atomic.compare_add);
        default:
            return false;
    }
}

bool numbers_marked(const transport::SendWr& wr) {
    const lint::Op op = lint_op(wr.op);
    if (op != lint::Op::Write && op != lint::Op::Read && op != lint::Op::Atomic) return false;
    return is_marked_address(wr.remote_address) || is_marked_key(wr.rkey.raw) ||
           (op == lint::Op::Atomic && is_marked_word(wr.compare_add));
}

// What the device refuses is not read, or may not be there.
bool inlined_marked(const ibv_send_wr& wr, const ibv_qp_cap& granted) {
    std::uint64_t total = 0;
    for (const ibv_sge& sge : sges_of(wr)) total += sge.length;
    if (total > granted.max_inline_data) return false;
    const auto list = sges_of(wr);
    return std::any_of(list.begin(), list.end(), [](const ibv_sge& sge) {
        return memory_has_mark({reinterpret_cast<std::byte*>(sge.addr), sge.length});
    });
}

}  // namespace

lint::SgeTrouble Lint::trouble(PdId pd, const mem::Sge& sge, lint::Op op, std::uint32_t index) {
    const mem::AccessSet need =
        lint::writes_locally(op) ? mem::AccessSet(mem::Access::LocalWrite) : mem::AccessSet();
    lint::SgeTrouble out;
    const mem::Lookup found = process_.memory().local(pd, sge.lkey, sge.address, sge.length, need);
    out.fault = fault_of(found.fault);
    out.index = index;
    if (out.fault == lint::SgeFault::None) return out;
    const mem::RegionName region = out.fault == lint::SgeFault::NoSuchKey
                                       ? process_.memory().region_at(sge.address)
                                       : process_.memory().region_with(sge.lkey.raw);
    out.region_key = region.key;
    out.region_address = region.address;
    out.region_length = region.key == 0 ? 0 : region.length;
    return out;
}

// Keys of inlined data are not looked at, and the bytes are the device's once the call returns.
void Lint::finish(lint::Request& request, PdId pd, std::span<const mem::Sge> sges) {
    std::uint32_t index = 0;
    for (const mem::Sge& sge : sges) {
        request.bytes += sge.length;
        if (index < request.sges.size())
            request.sges[request.sge_count++] = {sge.address, sge.length, sge.lkey.raw};
        if (!request.inlined && sge.length > 0 && request.trouble.fault == lint::SgeFault::None)
            request.trouble = trouble(pd, sge, request.op, index);
        if (!request.inlined && !lint::writes_locally(request.op))
            request.carries = request.carries || carries_mark(pd, sge);
        ++index;
    }
    const bool read = request.op == lint::Op::Send || request.op == lint::Op::Write;
    const bool all_followed = index == request.sge_count && request.bytes > 0;
    if (read && all_followed && !request.inlined && request.trouble.fault == lint::SgeFault::None)
        request.print = look(pd.raw, request);
}

Lint::Requests Lint::requests_of(Qp& qp, const ibv_send_wr* list) {
    Requests out;
    LintScratch scratch;
    for (const ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
        lint::Request& request = out.emplace_back();
        request.wr_id = wr->wr_id;
        request.given = wr;
        request.op = lint_op(wr->opcode);
        request.signaled = qp.signal_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0;
        request.inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
        request.fenced = (wr->send_flags & IBV_SEND_FENCE) != 0;
        request.carries =
            numbers_marked(*wr) || (request.inlined && inlined_marked(*wr, qp.capabilities));
        if (request.op == lint::Op::Read) request.remote = wr->wr.rdma.remote_addr;
        if (request.op == lint::Op::Atomic) request.remote = wr->wr.atomic.remote_addr;
        if (carries_immediate(wr->opcode)) request.immediate = wr->imm_data;
        if (request.op == lint::Op::Local || qp.base.qp_base.pd == nullptr) continue;
        finish(request, pd_of(qp.base.qp_base.pd).id, lint_sges(sges_of(*wr), scratch));
    }
    return out;
}

Lint::Requests Lint::requests_of(ibv_pd* pd, const ibv_recv_wr* list) {
    Requests out;
    LintScratch scratch;
    for (const ibv_recv_wr* wr = list; wr != nullptr; wr = wr->next) {
        lint::Request& request = out.emplace_back();
        request.wr_id = wr->wr_id;
        request.given = wr;
        request.op = lint::Op::Receive;
        request.signaled = true;
        if (pd != nullptr) finish(request, pd_of(pd).id, lint_sges(sges_of(*wr), scratch));
    }
    return out;
}

Lint::Requests Lint::requests_of(Qp& qp, const Builder& builder) {
    Requests out;
    for (std::size_t i = 0; i < builder.requests.size(); ++i) {
        const transport::SendWr& wr = builder.requests[i];
        const Builder::Data& data = builder.data[i];
        lint::Request& request = out.emplace_back();
        request.wr_id = wr.wr_id;
        request.op = lint_op(wr.op);
        request.signaled = qp.signal_all || wr.signaled;
        request.inlined = wr.inlined;
        request.fenced = wr.fence;
        request.carries = numbers_marked(wr);
        request.remote = wr.remote_address;
        if (wr.op == SendOp::SendImmediate || wr.op == SendOp::WriteImmediate)
            request.immediate = ::htonl(wr.immediate);
        if (wr.inlined) {
            const ByteView all = builder.inline_bytes;
            request.bytes = data.inline_length;
            request.carries =
                request.carries || has_mark(all.subspan(data.first_inline, data.inline_length));
        } else if (request.op != lint::Op::Local && qp.base.qp_base.pd != nullptr) {
            finish(request, pd_of(qp.base.qp_base.pd).id,
                   std::span<const mem::Sge>(builder.sges).subspan(data.first_sge, data.sge_count));
        }
    }
    return out;
}

}  // namespace feroce::verbs
