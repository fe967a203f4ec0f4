// See channel.hpp.
#include "rtrs/channel.hpp"

#include <endian.h>

#include <array>

#include "base/assert.hpp"

namespace feroce::rtrs {

namespace {

constexpr std::size_t kBatch = 64;
constexpr std::size_t kBatchSges = 4 * kBatch;
constexpr std::size_t kReceiveBatch = 64;
// What a device without hardware sends at once; more would only wait for the end of the round, and
// the peer with it.
constexpr std::size_t kBatchBytes = 60 << 10;

}  // namespace

Channel::Flush::Flush(rdma::Loop& loop, Channel& of)
    : Deferred(loop, [](Deferred& self) { static_cast<Flush&>(self).channel.flush(); }),
      channel(of) {}

Channel::Channel(Owner& owner, std::uint16_t number, const Shape& shape, rdma::Loop& loop)
    : owner_(owner),
      number_(number),
      shape_(shape),
      memory_(shape.outbox_size + shape.first_receive_size +
                  std::size_t{shape.receive_size} * (shape.receives - 1),
              &loop.runtime().memory()),
      receives_(shape.receives),
      credits_(shape.sends),
      flush_(loop, *this) {
    batch_.reserve(kBatch);
    batch_sges_.reserve(kBatchSges);
    used_receives_.reserve(kReceiveBatch);
    std::uint32_t at = shape.outbox_size;
    for (Receive& receive : receives_) {
        receive.complete = on_receive;
        receive.channel = this;
        receive.at = at;
        receive.size = &receive == receives_.data() ? shape.first_receive_size : shape.receive_size;
        at += receive.size;
    }
    send_.complete = on_sent;
    send_.channel = this;
}

bool Channel::start(ibv_qp* qp) {
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
    region_.reset(ibv_reg_mr(qp->pd, memory_.data(), memory_.size(), kAccess));
    if (!region_) return false;
    qp_ = qp;
    for (Receive& receive : receives_) {
        used_receives_.push_back(&receive);
        if (used_receives_.size() < kReceiveBatch && &receive != &receives_.back()) continue;
        if (!post_receives(used_receives_)) return false;
        used_receives_.clear();
    }
    return true;
}

void Channel::stop() {
    qp_ = nullptr;
    discard();
    region_.reset();
}

bool Channel::post_receives(std::span<Receive* const> receives) {
    std::array<ibv_recv_wr, kReceiveBatch> chain;
    std::array<ibv_sge, kReceiveBatch> sges;
    for (std::size_t i = 0; i < receives.size(); ++i) {
        const Receive& receive = *receives[i];
        sges[i] = {reinterpret_cast<std::uint64_t>(memory_.data()) + receive.at, receive.size,
                   region_->lkey};
        const bool last = i + 1 == receives.size();
        chain[i] = {rdma::to_wr_id(receives[i]), last ? nullptr : &chain[i + 1], &sges[i], 1};
    }
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp_, chain.data(), &bad) == 0;
}

void Channel::on_receive(rdma::Operation& operation, const ibv_wc& completion) {
    auto& receive = static_cast<Receive&>(operation);
    Channel& self = *receive.channel;
    if (self.qp_ == nullptr) return;
    if (completion.status != IBV_WC_SUCCESS)
        return self.broken(ibv_wc_status_str(completion.status));
    const bool send = completion.opcode == IBV_WC_RECV;
    const ByteView data =
        ByteView(self.memory_).subspan(receive.at, send ? completion.byte_len : 0);
    self.owner_.on_receive(self, completion, data);
    if (self.qp_ == nullptr) return;
    self.used_receives_.push_back(&receive);
    if (self.used_receives_.size() < kSpareReceives) return;
    self.flush_.schedule();
    if (self.used_receives_.size() == kReceiveBatch) self.flush();
}

void Channel::post(std::span<ibv_send_wr> chain, bool signal) {
    std::size_t sges = 0;
    bool is_inline = false;
    for (const ibv_send_wr& wr : chain) {
        sges += static_cast<std::size_t>(wr.num_sge);
        is_inline |= (wr.send_flags & IBV_SEND_INLINE) != 0;
    }
    ASSERT(chain.size() <= kBatch && sges <= kBatchSges);
    if (batch_.size() + chain.size() > kBatch || batch_sges_.size() + sges > kBatchSges) flush();
    if (qp_ == nullptr) return;
    if (credits_.take_and_ask(chain.size(), signal)) chain.back().send_flags |= IBV_SEND_SIGNALED;
    for (ibv_send_wr& wr : chain) {
        wr.wr_id = rdma::to_wr_id(&send_);
        // Into place behind the others, where they stay until the device has seen them.
        ibv_sge* const first = batch_sges_.data() + batch_sges_.size();
        for (int i = 0; i < wr.num_sge; ++i) {
            batch_bytes_ += wr.sg_list[i].length;
            batch_sges_.push_back(wr.sg_list[i]);  // Few: one by one is the shortest.
        }
        wr.sg_list = first;
        batch_.push_back(wr);
    }
    // The caller's memory of an inline message ends with this call.
    if (is_inline || batch_bytes_ >= kBatchBytes) return flush();
    flush_.schedule();
}

bool Channel::fits_packet(const ibv_send_wr& wr) {
    if (wr.num_sge < 2) return false;
    if (packet_size_ == 0) {
        ibv_qp_attr attributes{};
        ibv_qp_init_attr initial{};
        if (ibv_query_qp(qp_, &attributes, IBV_QP_PATH_MTU, &initial) != 0) return false;
        packet_size_ = 128u << attributes.path_mtu;
    }
    std::uint32_t size = 0;
    for (int i = 0; i + 1 < wr.num_sge; ++i) size += wr.sg_list[i].length;
    return size <= packet_size_ && size >= packet_size_ / 2;
}

void Channel::post_request(ibv_send_wr& wr, bool signal) {
    const bool small = fits_packet(wr);
    if (batch_.size() == kBatch) flush();
    if (qp_ == nullptr) return;
    // The second may be needed for the data.
    credits_.take(1);
    post({&wr, 1}, signal);
    if (small && !batch_.empty()) ++small_requests_;
}

// Takes the data off the batch's small requests into work requests of its own; the first of all.
ibv_send_wr* Channel::data_first(std::span<ibv_send_wr> data) {
    std::size_t count = 0;
    for (ibv_send_wr& wr : batch_) {
        if (!fits_packet(wr)) continue;
        ibv_send_wr& only_data = data[count++] = wr;
        only_data.opcode = IBV_WR_RDMA_WRITE;
        only_data.send_flags = 0;
        only_data.num_sge = wr.num_sge - 1;
        for (int i = 0; i + 1 < wr.num_sge; ++i) wr.wr.rdma.remote_addr += wr.sg_list[i].length;
        wr.sg_list += only_data.num_sge;
        wr.num_sge = 1;
        if (count > 1) data[count - 2].next = &only_data;
    }
    data[count - 1].next = batch_.data();
    return data.data();
}

// Receives first: what is sent may be answered at once.
void Channel::flush() {
    flush_.unlink();
    if (qp_ == nullptr) return discard();
    if (used_receives_.size() >= kSpareReceives) {
        if (!post_receives(used_receives_)) return broken("a receive could not be posted again");
        used_receives_.clear();
    }
    if (batch_.empty()) return;
    for (std::size_t i = 0; i + 1 < batch_.size(); ++i) batch_[i].next = &batch_[i + 1];
    batch_.back().next = nullptr;
    std::array<ibv_send_wr, kBatch> data;
    ibv_send_wr* const first = small_requests_ > 1 ? data_first(data) : batch_.data();
    ibv_send_wr* bad = nullptr;
    const bool posted = ibv_post_send(qp_, first, &bad) == 0;
    batch_.clear();
    batch_sges_.clear();
    small_requests_ = batch_bytes_ = 0;
    if (!posted) broken("a send could not be posted");
}

void Channel::discard() {
    flush_.unlink();
    batch_.clear();
    batch_sges_.clear();
    small_requests_ = batch_bytes_ = 0;
    used_receives_.clear();
}

void Channel::on_sent(rdma::Operation& operation, const ibv_wc& completion) {
    Channel& self = *static_cast<Send&>(operation).channel;
    if (self.qp_ == nullptr) return;
    if (completion.status != IBV_WC_SUCCESS)
        return self.broken(ibv_wc_status_str(completion.status));
    self.credits_.give();
    self.owner_.on_room(self);
}

void Channel::post_probe() {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    post({&wr, 1}, true);
}

void Channel::post_immediate(Immediate immediate, bool signal) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htobe32(immediate.raw());
    post({&wr, 1}, signal);
}

void Channel::post_message(std::size_t size, bool signal) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory_.data()), static_cast<std::uint32_t>(size),
                region_->lkey};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    post({&wr, 1}, signal);
}

void Channel::post_inline_message(std::span<std::byte> message, bool signal) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(message.data()),
                static_cast<std::uint32_t>(message.size()), 0};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    post({&wr, 1}, signal);
}

void Channel::bind(ibv_mw* window, const ibv_mw_bind_info& where, rdma::Operation* operation) {
    flush();  // In its order among the sends.
    if (qp_ == nullptr) return;
    ibv_mw_bind request{};
    // A completion of somebody else's gives no room back; that of the next send does.
    const bool signal = operation == nullptr && credits_.take_and_ask(1);
    if (operation != nullptr) credits_.take(1);
    rdma::Operation& told = operation != nullptr ? *operation : send_;
    request.wr_id = rdma::to_wr_id(&told);
    if (signal || operation != nullptr) request.send_flags = IBV_SEND_SIGNALED;
    request.bind_info = where;
    if (ibv_bind_mw(qp_, window, &request) != 0) broken("a window could not be bound");
}

void Channel::broken(const char* why) {
    if (qp_ == nullptr) return;
    qp_ = nullptr;
    owner_.on_broken(*this, why);
}

}  // namespace feroce::rtrs
