#include "verbs/parts.hpp"

#include <cstring>

#include "base/scratch.hpp"
#include "verbs/common.hpp"
#include "verbs/ops.hpp"

namespace feroce::verbs {
namespace {

using transport::SendOp;

static_assert(static_cast<int>(SendOp::Write) == IBV_WR_RDMA_WRITE &&
              static_cast<int>(SendOp::WriteImmediate) == IBV_WR_RDMA_WRITE_WITH_IMM &&
              static_cast<int>(SendOp::Send) == IBV_WR_SEND &&
              static_cast<int>(SendOp::SendImmediate) == IBV_WR_SEND_WITH_IMM &&
              static_cast<int>(SendOp::Read) == IBV_WR_RDMA_READ &&
              static_cast<int>(SendOp::CompareSwap) == IBV_WR_ATOMIC_CMP_AND_SWP &&
              static_cast<int>(SendOp::FetchAdd) == IBV_WR_ATOMIC_FETCH_AND_ADD &&
              static_cast<int>(SendOp::LocalInvalidate) == IBV_WR_LOCAL_INV &&
              static_cast<int>(SendOp::BindWindow) == IBV_WR_BIND_MW &&
              static_cast<int>(SendOp::SendInvalidate) == IBV_WR_SEND_WITH_INV);

std::optional<SendOp> operation(ibv_wr_opcode opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
            return SendOp::Write;
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return SendOp::WriteImmediate;
        case IBV_WR_SEND:
            return SendOp::Send;
        case IBV_WR_SEND_WITH_IMM:
            return SendOp::SendImmediate;
        case IBV_WR_SEND_WITH_INV:
            return SendOp::SendInvalidate;
        case IBV_WR_RDMA_READ:
            return SendOp::Read;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return SendOp::CompareSwap;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return SendOp::FetchAdd;
        case IBV_WR_LOCAL_INV:
            return SendOp::LocalInvalidate;
        case IBV_WR_BIND_MW:
            return SendOp::BindWindow;
        default:
            return std::nullopt;
    }
}

void set_target(transport::SendWr& out, const ibv_send_wr& wr) {
    if (out.op == SendOp::CompareSwap || out.op == SendOp::FetchAdd) {
        out.remote_address = wr.wr.atomic.remote_addr;
        out.rkey = {wr.wr.atomic.rkey};
        out.compare_add = wr.wr.atomic.compare_add;
        out.swap = wr.wr.atomic.swap;
    } else {
        out.remote_address = wr.wr.rdma.remote_addr;
        out.rkey = {wr.wr.rdma.rkey};
    }
}

using SgeScratch = Scratch<mem::Sge, limits::kSges>;

// Scatter-gather entries have the same words in both forms, but are different types.
std::span<const mem::Sge> convert(const ibv_sge* list, int count, SgeScratch& scratch) {
    const auto out = scratch.span();
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
        out[i] = {list[i].addr, list[i].length, LKey{list[i].lkey}};
    return out.first(static_cast<std::size_t>(count));
}

bool list_fits(const ibv_sge* list, int count) {
    const bool fits = count >= 0 && static_cast<std::uint32_t>(count) <= limits::kSges;
    return fits && (count == 0 || list != nullptr);
}

constexpr Error kBadList{EINVAL, "no SGE list, or more SGEs than the device has"};

// `out` is the room in which work requests of a list are made one after the other: it is large, and
// what an operation does not set it does not read.
Result<void> post_one(process::Shard::Session& session, Qp& qp, const ibv_send_wr& wr,
                      transport::SendWr& out) {
    const std::optional<SendOp> op = operation(wr.opcode);
    if (!op) return Error{EINVAL, "unknown operation"};
    if (!list_fits(wr.sg_list, wr.num_sge)) return kBadList;
    SgeScratch sges;
    out.wr_id = wr.wr_id;
    out.op = *op;
    set_send_flags(out, wr.send_flags);
    out.sges = convert(wr.sg_list, wr.num_sge, sges);
    if (*op == SendOp::SendInvalidate || *op == SendOp::LocalInvalidate) {
        out.invalidate = {wr.invalidate_rkey};
    } else {
        out.immediate = be32toh(wr.imm_data);
    }
    if (*op == SendOp::BindWindow) {
        if (wr.bind_mw.mw == nullptr) return Error{EINVAL, "a bind needs a window"};
        out.bind = window_bind(*wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
        out.remote_address = 0;  // It has none; kept of the last one it would mislead.
        out.rkey = {};
    } else if (qp.base.qp_base.qp_type == IBV_QPT_UD) {
        if (wr.wr.ud.ah == nullptr || !alive(wr.wr.ud.ah->context))
            return Error{EINVAL, "a datagram needs a live address handle"};
        out.path = object_of<Ah>(wr.wr.ud.ah).path;
        out.destination_qpn = {wr.wr.ud.remote_qpn & 0xff'ffff};
        out.qkey = {wr.wr.ud.remote_qkey};
    } else {
        set_target(out, wr);
    }
    if (qp.base.qp_base.qp_type == IBV_QPT_XRC_SEND) out.remote_srq = {wr.qp_type.xrc.remote_srqn};
    Result<void> posted = session.engine().post_send(session.now(), *qp.machine, out);
    if (posted && *op == SendOp::BindWindow) note_bind(*wr.bind_mw.mw, out.bind);
    return posted;
}

}  // namespace

void set_send_flags(transport::SendWr& wr, unsigned int flags) {
    wr.signaled = (flags & IBV_SEND_SIGNALED) != 0;
    wr.solicited = (flags & IBV_SEND_SOLICITED) != 0;
    wr.fence = (flags & IBV_SEND_FENCE) != 0;
    wr.inlined = (flags & IBV_SEND_INLINE) != 0;
}

mem::WindowBind window_bind(const ibv_mw& mw, std::uint32_t new_rkey,
                            const ibv_mw_bind_info& info) {
    mem::WindowBind bind;
    bind.window = {mw.rkey};
    if (info.mr != nullptr) bind.region = {info.mr->lkey};
    bind.address = info.addr;
    bind.length = info.length;
    // Programs pass local rights too; a window has none to give.
    bind.access = mem::AccessSet(info.mw_access_flags & ~std::uint32_t{IBV_ACCESS_LOCAL_WRITE});
    bind.new_rkey = {new_rkey};
    return bind;
}

void note_bind(ibv_mw& mw, const mem::WindowBind& bind) {
    mw.rkey = mem::Memory::bound_key({mw.rkey}, bind.new_rkey).raw;
}

int post_send(ibv_qp* base, ibv_send_wr* list, ibv_send_wr** bad) {
    Qp& qp = qp_of(base);
    if (!alive(base->context) || qp.machine == nullptr) {
        *bad = list;
        return refuse("ibv_post_send", kDead);
    }
    process::Shard::Session session(*qp.shard, process::Shard::Work::Posts);
    transport::SendWr room;
    for (ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
        if (Result<void> posted = post_one(session, qp, *wr, room); !posted) {
            *bad = wr;
            return refuse("ibv_post_send", posted.error(), *qp.machine);
        }
    }
    return 0;
}

int post_recv(ibv_qp* base, ibv_recv_wr* list, ibv_recv_wr** bad) {
    Qp& qp = qp_of(base);
    if (!alive(base->context) || qp.machine == nullptr) {
        *bad = list;
        return refuse("ibv_post_recv", kDead);
    }
    SgeScratch sges;
    process::Shard::Session session(*qp.shard, process::Shard::Work::Receives);
    for (ibv_recv_wr* wr = list; wr != nullptr; wr = wr->next) {
        Result<void> posted = kBadList;
        if (list_fits(wr->sg_list, wr->num_sge))
            posted = session.engine().post_receive(
                session.now(), *qp.machine, {wr->wr_id, convert(wr->sg_list, wr->num_sge, sges)});
        if (!posted) {
            *bad = wr;
            return refuse("ibv_post_recv", posted.error(), *qp.machine);
        }
    }
    return 0;
}

int post_srq_recv(ibv_srq* base, ibv_recv_wr* list, ibv_recv_wr** bad) {
    if (!alive(base->context)) {
        *bad = list;
        return refuse("ibv_post_srq_recv", kDead);
    }
    SgeScratch sges;
    for (ibv_recv_wr* wr = list; wr != nullptr; wr = wr->next) {
        Result<void> posted = kBadList;
        if (list_fits(wr->sg_list, wr->num_sge))
            posted = srq_of(base).queue->post({wr->wr_id, convert(wr->sg_list, wr->num_sge, sges)});
        if (!posted) {
            *bad = wr;
            return refuse("ibv_post_srq_recv", posted.error());
        }
    }
    return 0;
}

}  // namespace feroce::verbs
