#include "verbs/parts.hpp"

#include <cstring>

#include "verbs/annotated.hpp"
#include "verbs/common.hpp"
#include "verbs/fault_ops.hpp"
#include "verbs/lint.hpp"

namespace feroce::verbs {
namespace {

using transport::SendOp;

transport::SendWr& begin(ibv_qp_ex* base, SendOp op) {
    Builder& builder = qp_of(base).builder;
    builder.data.emplace_back();
    transport::SendWr& wr = builder.requests.emplace_back();
    wr.wr_id = base->wr_id;
    wr.op = op;
    set_send_flags(wr, base->wr_flags);
    wr.inlined = false;  // Said by the setter, not by a flag.
    return wr;
}

void note_error(Builder& builder, int error) {
    if (builder.error == 0) builder.error = error;
}

// The request that a setter is about. A setter before any request spoils the batch.
transport::SendWr& last(ibv_qp_ex* base) {
    Builder& builder = qp_of(base).builder;
    if (builder.requests.empty()) {
        note_error(builder, EINVAL);
        return begin(base, SendOp::Send);
    }
    return builder.requests.back();
}

void begin_remote(ibv_qp_ex* base, SendOp op, std::uint32_t rkey, std::uint64_t address) {
    transport::SendWr& wr = begin(base, op);
    wr.rkey = {rkey};
    wr.remote_address = address;
}

void wr_send(ibv_qp_ex* base) {
    begin(base, SendOp::Send);
}

void wr_send_imm(ibv_qp_ex* base, __be32 immediate) {
    begin(base, SendOp::SendImmediate).immediate = be32toh(immediate);
}

void wr_send_inv(ibv_qp_ex* base, std::uint32_t key) {
    begin(base, SendOp::SendInvalidate).invalidate = {key};
}

void wr_rdma_read(ibv_qp_ex* base, std::uint32_t rkey, std::uint64_t address) {
    begin_remote(base, SendOp::Read, rkey, address);
}

void wr_rdma_write(ibv_qp_ex* base, std::uint32_t rkey, std::uint64_t address) {
    begin_remote(base, SendOp::Write, rkey, address);
}

void wr_rdma_write_imm(ibv_qp_ex* base, std::uint32_t rkey, std::uint64_t address,
                       __be32 immediate) {
    begin_remote(base, SendOp::WriteImmediate, rkey, address);
    last(base).immediate = be32toh(immediate);
}

void wr_atomic_cmp_swp(ibv_qp_ex* base, std::uint32_t rkey, std::uint64_t address,
                       std::uint64_t compare, std::uint64_t swap) {
    begin_remote(base, SendOp::CompareSwap, rkey, address);
    last(base).compare_add = compare;
    last(base).swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* base, std::uint32_t rkey, std::uint64_t address,
                         std::uint64_t add) {
    begin_remote(base, SendOp::FetchAdd, rkey, address);
    last(base).compare_add = add;
}

void wr_atomic_write(ibv_qp_ex* base, std::uint32_t rkey, std::uint64_t address,
                     const void* value) {
    begin_remote(base, SendOp::AtomicWrite, rkey, address);
    std::memcpy(&last(base).compare_add, value, sizeof(std::uint64_t));
}

void wr_local_inv(ibv_qp_ex* base, std::uint32_t key) {
    begin(base, SendOp::LocalInvalidate).invalidate = {key};
}

void wr_bind_mw(ibv_qp_ex* base, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
    if (mw == nullptr) return note_error(qp_of(base).builder, EINVAL);
    transport::SendWr& wr = begin(base, SendOp::BindWindow);
    wr.bind = window_bind(*mw, rkey, *info);
    note_bind(*mw, wr.bind);
}

void wr_set_ud_addr(ibv_qp_ex* base, ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey) {
    if (ah == nullptr || !alive(ah->context)) {
        note_error(qp_of(base).builder, EINVAL);
        return;
    }
    transport::SendWr& wr = last(base);
    wr.path = object_of<Ah>(ah).path;
    wr.destination_qpn = {qpn & 0xff'ffff};
    wr.qkey = {qkey};
}

void wr_set_xrc_srqn(ibv_qp_ex* base, std::uint32_t number) {
    last(base).remote_srq = {number};
}

void wr_set_sge_list(ibv_qp_ex* base, std::size_t count, const ibv_sge* list) {
    Builder& builder = qp_of(base).builder;
    if (count > qp_of(base).capabilities.max_send_sge) return note_error(builder, EINVAL);
    last(base).inlined = false;
    builder.data.back().first_sge = builder.sges.size();
    builder.data.back().sge_count = count;
    for (std::size_t i = 0; i < count; ++i)
        builder.sges.push_back({list[i].addr, list[i].length, LKey{list[i].lkey}});
}

void wr_set_sge(ibv_qp_ex* base, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
    const ibv_sge sge{address, length, lkey};
    wr_set_sge_list(base, 1, &sge);
}

void wr_set_inline_data_list(ibv_qp_ex* base, std::size_t count, const ibv_data_buf* list) {
    Builder& builder = qp_of(base).builder;
    last(base).inlined = true;
    Builder::Data& data = builder.data.back();
    data.first_inline = builder.inline_bytes.size();
    data.inline_length = 0;
    for (std::size_t i = 0; i < count; ++i) data.inline_length += list[i].length;
    if (data.inline_length > qp_of(base).capabilities.max_inline_data)
        return note_error(builder, EINVAL);
    for (std::size_t i = 0; i < count; ++i) {
        const auto* bytes = static_cast<const std::byte*>(list[i].addr);
        builder.inline_bytes.insert(builder.inline_bytes.end(), bytes, bytes + list[i].length);
    }
}

void wr_set_inline_data(ibv_qp_ex* base, void* address, std::size_t length) {
    const ibv_data_buf buffer{address, length};
    wr_set_inline_data_list(base, 1, &buffer);
}

void wr_start(ibv_qp_ex* base) {
    Builder& builder = qp_of(base).builder;
    builder.mutex.lock();
    builder.requests.clear();
    builder.data.clear();
    builder.sges.clear();
    builder.inline_bytes.clear();
    builder.error = 0;
}

// From here on the vectors do not move. Inline data needs an entry of its own that points at it.
void place_data(Builder& builder) {
    for (std::size_t i = 0; i < builder.requests.size(); ++i) {
        if (!builder.requests[i].inlined) continue;
        Builder::Data& data = builder.data[i];
        data.first_sge = builder.sges.size();
        data.sge_count = 1;
        const std::byte* bytes = builder.inline_bytes.data() + data.first_inline;
        builder.sges.push_back({reinterpret_cast<std::uintptr_t>(bytes),
                                static_cast<std::uint32_t>(data.inline_length), LKey{}});
    }
    for (std::size_t i = 0; i < builder.requests.size(); ++i)
        builder.requests[i].sges =
            std::span<const mem::Sge>(builder.sges)
                .subspan(builder.data[i].first_sge, builder.data[i].sge_count);
}

int post_all(Qp& qp) {
    place_data(qp.builder);
    process::Shard::Session session(*qp.shard, process::Shard::Work::Posts);
    const Result<void> posted =
        session.engine().post_sends(session.now(), *qp.machine, qp.builder.requests);
    return posted ? 0 : refuse("ibv_wr_complete", posted.error(), *qp.machine);
}

int wr_complete(ibv_qp_ex* base) {
    Qp& qp = qp_of(base);
    int error = qp.builder.error;
    if (error != 0) {
        error =
            refuse("ibv_wr_complete",
                   {error, "a request lacks its address, or has too many SGEs or inline bytes"});
    } else if (!alive(base->qp_base.context)) {
        error = refuse("ibv_wr_complete", kDead);
    } else {
        error = post_all(qp);
    }
    qp.builder.mutex.unlock();
    return error;
}

int linted_wr_complete(ibv_qp_ex* base) {
    return lint_builder(base, wr_complete);
}

template <auto kComplete>
int annotated_wr_complete(ibv_qp_ex* base) {
    note_post();
    return kComplete(base);
}

template <auto kComplete>
void annotate_complete(ibv_qp_ex& out) {
    out.wr_complete = wants_annotations() ? annotated_wr_complete<kComplete> : kComplete;
}

template <auto kComplete>
void fill_complete(ibv_qp_ex& out) {
    if (faults_wanted())
        annotate_complete<faulted_wr_complete<kComplete>>(out);
    else
        annotate_complete<kComplete>(out);
}

void wr_abort(ibv_qp_ex* base) {
    qp_of(base).builder.mutex.unlock();
}

// By its number: headers of old releases, as Ubuntu 22.04 has them, do not know it.
constexpr std::uint64_t kAtomicWrite = 1 << 12;  // IBV_QP_EX_WITH_ATOMIC_WRITE

template <class QpEx>
void fill_atomic_write(QpEx& out) {
    if constexpr (requires { out.wr_atomic_write; }) out.wr_atomic_write = wr_atomic_write;
}

}  // namespace

bool builder_supports(ibv_qp_type type, std::uint64_t operations) {
    constexpr std::uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    constexpr std::uint64_t kWrites =
        IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    constexpr std::uint64_t kLocal = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    constexpr std::uint64_t kReliable =
        kSends | kWrites | kLocal | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV |
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    switch (type) {
        case IBV_QPT_RC:
            return (operations & ~(kReliable | kAtomicWrite)) == 0;
        case IBV_QPT_XRC_SEND:
            return (operations & ~kReliable) == 0;
        case IBV_QPT_UC:
            return (operations & ~(kSends | kWrites | kLocal | IBV_QP_EX_WITH_SEND_WITH_INV)) == 0;
        case IBV_QPT_UD:
            return (operations & ~kSends) == 0;
        default:
            return false;
    }
}

void fill_builder_operations(Qp& qp) {
    ibv_qp_ex& out = qp.base;
    qp.extended = true;
    out.wr_start = wr_start;
    if (lint_of(out.qp_base.context) != nullptr)
        fill_complete<linted_wr_complete>(out);
    else
        fill_complete<wr_complete>(out);
    out.wr_abort = wr_abort;
    out.wr_send = wr_send;
    out.wr_send_imm = wr_send_imm;
    out.wr_send_inv = wr_send_inv;
    out.wr_rdma_read = wr_rdma_read;
    out.wr_rdma_write = wr_rdma_write;
    out.wr_rdma_write_imm = wr_rdma_write_imm;
    out.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    out.wr_atomic_fetch_add = wr_atomic_fetch_add;
    fill_atomic_write(out);
    out.wr_local_inv = wr_local_inv;
    out.wr_bind_mw = wr_bind_mw;
    out.wr_set_ud_addr = wr_set_ud_addr;
    out.wr_set_xrc_srqn = wr_set_xrc_srqn;
    out.wr_set_sge = wr_set_sge;
    out.wr_set_sge_list = wr_set_sge_list;
    out.wr_set_inline_data = wr_set_inline_data;
    out.wr_set_inline_data_list = wr_set_inline_data_list;
}

}  // namespace feroce::verbs

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* base) {
    feroce::verbs::Qp& qp = feroce::verbs::qp_of(base);
    return qp.extended ? &qp.base : nullptr;
}
