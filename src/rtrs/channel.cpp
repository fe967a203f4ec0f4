// See channel.hpp.
#include "rtrs/channel.hpp"

#include <endian.h>

#include "base/assert.hpp"

namespace feroce::rtrs {

namespace {
constexpr std::uint32_t kSignalEvery = 16;
}

Channel::Channel(Owner& owner, std::uint16_t number, const Shape& shape,
                 std::pmr::memory_resource& memory)
    : owner_(owner),
      number_(number),
      shape_(shape),
      memory_(shape.outbox_size + shape.first_receive_size +
                  std::size_t{shape.receive_size} * (shape.receives - 1),
              &memory),
      receives_(shape.receives),
      free_sends_(shape.sends),
      signalled_(shape.sends) {
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
    for (Receive& receive : receives_)
        if (!post_receive(receive)) return false;
    return true;
}

void Channel::stop() {
    qp_ = nullptr;
    region_.reset();
}

bool Channel::post_receive(Receive& receive) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory_.data()) + receive.at, receive.size,
                region_->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = rdma::to_wr_id(&receive);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp_, &wr, &bad) == 0;
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
    if (self.qp_ != nullptr && !self.post_receive(receive))
        self.broken("a receive could not be posted again");
}

bool Channel::wants_signal(std::size_t count) {
    ASSERT(has_room(count));
    free_sends_ -= static_cast<std::uint32_t>(count);
    unsignalled_ += static_cast<std::uint32_t>(count);
    if (unsignalled_ < kSignalEvery && free_sends_ > shape_.sends / 2) return false;
    signalled_.push(unsignalled_);
    unsignalled_ = 0;
    return true;
}

void Channel::post(std::span<ibv_send_wr> chain) {
    for (std::size_t i = 0; i < chain.size(); ++i) {
        chain[i].wr_id = rdma::to_wr_id(&send_);
        chain[i].next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
    }
    if (wants_signal(chain.size())) chain.back().send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp_, chain.data(), &bad) != 0) broken("a send could not be posted");
}

void Channel::on_sent(rdma::Operation& operation, const ibv_wc& completion) {
    Channel& self = *static_cast<Send&>(operation).channel;
    if (self.qp_ == nullptr) return;
    if (completion.status != IBV_WC_SUCCESS)
        return self.broken(ibv_wc_status_str(completion.status));
    self.free_sends_ += self.signalled_.front();
    self.signalled_.pop();
    self.owner_.on_room(self);
}

void Channel::post_immediate(Immediate immediate) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htobe32(immediate.raw());
    post({&wr, 1});
}

void Channel::post_message(std::size_t size) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory_.data()), static_cast<std::uint32_t>(size),
                region_->lkey};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    post({&wr, 1});
}

void Channel::post_inline_message(std::span<std::byte> message) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(message.data()),
                static_cast<std::uint32_t>(message.size()), 0};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    post({&wr, 1});
}

void Channel::bind(ibv_mw* window, const ibv_mw_bind_info& where, rdma::Operation* operation) {
    ibv_mw_bind request{};
    // A completion of somebody else's gives no room back; that of the next send does.
    const bool signal = operation == nullptr && wants_signal(1);
    if (operation != nullptr) {
        --free_sends_;
        ++unsignalled_;
    }
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
