#include "transport/send_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.hpp"

namespace feroce::transport {

namespace {

constexpr std::uint64_t kMessageBytesMax = std::uint64_t{1} << 31;

bool may_inline(SendOp op) {
    switch (op) {
        case SendOp::Send:
        case SendOp::SendImmediate:
        case SendOp::SendInvalidate:
        case SendOp::Write:
        case SendOp::WriteImmediate:
            return true;
        default:
            return false;
    }
}

}  // namespace

SendQueue::SendQueue(const QpCapabilities& capabilities, bool signal_all)
    : capabilities_(capabilities),
      signal_all_(signal_all),
      slots_(std::max(capabilities.send_wr_max, 1U)),
      sges_(slots_.size() * std::max(capabilities.send_sge_max, 1U)),
      inline_(slots_.size() * capabilities.inline_max) {}

Result<void> SendQueue::post(const SendWr& wr) {
    if (size() == slots_.size()) return Error{ENOMEM, "the send queue is full"};
    const std::size_t sge_max = std::max(capabilities_.send_sge_max, 1U);
    if (wr.sges.size() > sge_max) return Error{EINVAL, "the send has more SGEs than allowed"};
    std::uint64_t length = 0;
    for (const mem::Sge& sge : wr.sges) length += sge.length;
    if (length > kMessageBytesMax) return Error{EINVAL, "the message is longer than 2 GiB"};
    if (wr.inlined && !may_inline(wr.op)) return Error{EINVAL, "this operation cannot be inline"};
    if (wr.inlined && length > capabilities_.inline_max)
        return Error{ENOMEM, "the inline data is longer than max_inline_data"};

    const std::size_t slot = tail_ % slots_.size();
    SendWqe& wqe = slots_[slot];
    wqe = SendWqe{};
    wqe.wr = wr;
    wqe.wr.signaled = wr.signaled || signal_all_;
    wqe.length = static_cast<std::uint32_t>(length);
    mem::Sge* stored = sges_.data() + slot * sge_max;
    std::copy(wr.sges.begin(), wr.sges.end(), stored);
    wqe.wr.sges = {stored, wr.sges.size()};
    if (wr.inlined) {
        // Plain copy: inline data is the posting thread's own memory and needs no registration.
        std::byte* to = inline_.data() + slot * capabilities_.inline_max;
        for (const mem::Sge& sge : wr.sges) {
            if (sge.length > 0)
                std::memcpy(to, reinterpret_cast<const void*>(sge.address), sge.length);
            to += sge.length;
        }
        wqe.inline_length = wqe.length;
    }
    ++tail_;
    return {};
}

SendWqe& SendQueue::at(std::uint64_t index) {
    ASSERT(index >= head_ && index < tail_);
    return slots_[index % slots_.size()];
}

const SendWqe& SendQueue::at(std::uint64_t index) const {
    ASSERT(index >= head_ && index < tail_);
    return slots_[index % slots_.size()];
}

ByteView SendQueue::inline_data(std::uint64_t index) const {
    const std::size_t slot = index % slots_.size();
    return ByteView(inline_).subspan(slot * capabilities_.inline_max, slots_[slot].inline_length);
}

void SendQueue::retire() {
    ASSERT(!empty());
    ++head_;
}

void SendQueue::withdraw() {
    ASSERT(!empty());
    --tail_;
}

void SendQueue::clear() {
    head_ = tail_;
}

WcOpcode completion_opcode(SendOp op) {
    switch (op) {
        case SendOp::Send:
        case SendOp::SendImmediate:
        case SendOp::SendInvalidate:
            return WcOpcode::Send;
        case SendOp::Write:
        case SendOp::WriteImmediate:
            return WcOpcode::Write;
        case SendOp::Read:
            return WcOpcode::Read;
        case SendOp::CompareSwap:
            return WcOpcode::CompareSwap;
        case SendOp::FetchAdd:
            return WcOpcode::FetchAdd;
        case SendOp::AtomicWrite:
            return WcOpcode::AtomicWrite;
        case SendOp::Flush:
            return WcOpcode::Flush;
        case SendOp::LocalInvalidate:
            return WcOpcode::LocalInvalidate;
        case SendOp::BindWindow:
            return WcOpcode::BindWindow;
    }
    ASSERT(false);
    return WcOpcode::Send;
}

}  // namespace feroce::transport
