#include "transport/send_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/assert.hpp"
#include "mem/touch.hpp"

namespace feroce::transport {

namespace {

// How many requests early a slot is asked for: posting one takes a fraction of a trip to memory.
constexpr std::size_t kAhead = 4;

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

bool has_atomic_operands(SendOp op) {
    return op == SendOp::CompareSwap || op == SendOp::FetchAdd || op == SendOp::AtomicWrite;
}

std::uint32_t operand_of(const SendWr& wr) {
    switch (wr.op) {
        case SendOp::SendInvalidate:
        case SendOp::LocalInvalidate:
            return wr.invalidate.raw;
        case SendOp::Flush:
            return wr.flush_type;
        default:
            return wr.immediate;
    }
}

}  // namespace

SendQueue::SendQueue(QpType type, const QpCapabilities& capabilities, bool signal_all,
                     std::pmr::memory_resource* memory)
    : send_wr_max_(std::max(capabilities.send_wr_max, 1U)),
      sge_max_(std::max(capabilities.send_sge_max, 1U)),
      signal_all_(signal_all),
      is_datagram_(type == QpType::Ud),
      slots_(std::bit_ceil(send_wr_max_), memory),
      sges_(sge_max_ == 1 ? 0 : slots_.size() * sge_max_),
      rest_(slots_.size()),
      remote_srqs_(type == QpType::XrcInitiator ? slots_.size() : 0),
      inline_max_(capabilities.inline_max),
      inline_(slots_.size() * inline_max_) {
    ASSERT(sge_max_ <= kSgeMax);
}

Result<std::uint64_t> SendQueue::check(const SendWr& wr) const {
    if (size() == send_wr_max_) return Error{ENOMEM, "the send queue is full"};
    if (wr.sges.size() > sge_max_) return Error{EINVAL, "the send has more SGEs than allowed"};
    std::uint64_t length = 0;
    for (const mem::Sge& sge : wr.sges) length += sge.length;
    if (length > kMessageBytesMax) return Error{EINVAL, "the message is longer than 2 GiB"};
    if (wr.inlined && !may_inline(wr.op)) return Error{EINVAL, "this operation cannot be inline"};
    if (wr.inlined && length > inline_max_)
        return Error{ENOMEM, "the inline data is longer than max_inline_data"};
    return length;
}

Result<void> SendQueue::post(const SendWr& wr, std::uint32_t length) {
    const std::size_t slot = slot_for_tail();
    SendWqe& wqe = slots_[slot];
    wqe = SendWqe{};
    wqe.wr_id = wr.wr_id;
    wqe.remote_address = wr.remote_address;
    wqe.rkey = wr.rkey;
    wqe.length = length;
    wqe.operand = operand_of(wr);
    wqe.op = wr.op;
    wqe.sge_count = static_cast<std::uint8_t>(wr.sges.size());
    wqe.signaled = wr.signaled || signal_all_;
    wqe.solicited = wr.solicited;
    wqe.fence = wr.fence;
    wqe.inlined = wr.inlined;
    if (!wr.sges.empty()) wqe.first_sge = wr.sges.front();
    if (!store_lists(slot, wr))
        return Error{EFAULT, "there is no memory where the inline data should be"};
    store_rest(slot, wr);  // Remembers the queue that it names: only of what is taken.
    ++tail_;
    return {};
}

std::size_t SendQueue::slot_for_tail() {
    if (empty()) {
        first_slot_index_ = tail_;
        for (std::size_t i = 0; i < kAhead; ++i) prefetch_to_write(slots_.data() + i);
    }
    const std::size_t slot = (tail_ - first_slot_index_) & (slots_.size() - 1);
    prefetch_to_write(slots_.data() + slot + kAhead);
    return slot;
}

bool SendQueue::store_lists(std::size_t slot, const SendWr& wr) {
    if (wr.sges.size() > 1) std::copy(wr.sges.begin(), wr.sges.end(), &sges_[slot * sge_max_]);
    if (!wr.inlined) return true;
    // Inline data is the posting thread's own memory and needs no registration, but to exist.
    std::byte* to = inline_.data() + slot * inline_max_;
    for (const mem::Sge& sge : wr.sges) {
        auto* from = reinterpret_cast<std::byte*>(sge.address);
        const bool absent =
            from == nullptr || !mem::read_memory({from, sge.length}, {to, sge.length});
        if (sge.length > 0 && absent) return false;
        to += sge.length;
    }
    return true;
}

void SendQueue::store_rest(std::size_t slot, const SendWr& wr) {
    if (!remote_srqs_.empty()) {
        remote_srqs_[slot] = wr.remote_srq;
        if (!is_local(wr.op)) last_remote_srq_ = wr.remote_srq;
    }
    if (is_datagram_) {
        rest_[slot] = DatagramTarget{wr.path, wr.destination_qpn, wr.qkey};
    } else if (wr.op == SendOp::BindWindow) {
        rest_[slot] = wr.bind;
    } else if (has_atomic_operands(wr.op)) {
        rest_[slot] = AtomicOperands{wr.compare_add, wr.swap};
    }
}

std::size_t SendQueue::slot_of(std::uint64_t index) const {
    ASSERT(index >= head_ && index < tail_);
    return (index - first_slot_index_) & (slots_.size() - 1);
}

SendWqe& SendQueue::at(std::uint64_t index) {
    return slots_[slot_of(index)];
}

const SendWqe& SendQueue::at(std::uint64_t index) const {
    return slots_[slot_of(index)];
}

std::span<const mem::Sge> SendQueue::sges(std::uint64_t index) const {
    const std::size_t slot = slot_of(index);
    const SendWqe& wqe = slots_[slot];
    if (wqe.sge_count <= 1) return {&wqe.first_sge, wqe.sge_count};
    return {&sges_[slot * sge_max_], wqe.sge_count};
}

ByteView SendQueue::inline_data(std::uint64_t index) const {
    const std::size_t slot = slot_of(index);
    ASSERT(slots_[slot].inlined);
    return ByteView(inline_).subspan(slot * inline_max_, slots_[slot].length);
}

SrqNumber SendQueue::remote_srq(std::uint64_t index) const {
    return remote_srqs_[slot_of(index)];
}

const AtomicOperands& SendQueue::atomic(std::uint64_t index) const {
    const auto* found = std::get_if<AtomicOperands>(&rest_[slot_of(index)]);
    ASSERT(found != nullptr);
    return *found;
}

const DatagramTarget& SendQueue::datagram(std::uint64_t index) const {
    const auto* found = std::get_if<DatagramTarget>(&rest_[slot_of(index)]);
    ASSERT(found != nullptr);
    return *found;
}

const mem::WindowBind& SendQueue::bind(std::uint64_t index) const {
    const auto* found = std::get_if<mem::WindowBind>(&rest_[slot_of(index)]);
    ASSERT(found != nullptr);
    return *found;
}

void SendQueue::retire() {
    ASSERT(!empty());
    ++head_;
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
}

}  // namespace feroce::transport
