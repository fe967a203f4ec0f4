// How an endpoint makes up and posts operations.
#include <algorithm>

#include "base/assert.hpp"
#include "sim/workload/endpoint.hpp"

namespace feroce::sim {

using mem::Access;
using transport::QpType;
using transport::SendOp;
using transport::SendWr;
using transport::WcOpcode;

std::vector<SendOp> Endpoint::choices() const {
    const Swarm& swarm = context_.swarm;
    std::vector<SendOp> result;
    const auto add = [&](SendOp op, bool possible) {
        if (possible && swarm.has(op)) result.push_back(op);
    };
    const bool rc = reliable();
    const bool writes = plan_.type != QpType::Ud;
    // Without one of these an unreliable queue pair might have nothing to do.
    if (!rc && !swarm.has(SendOp::Send)) result.push_back(SendOp::SendImmediate);
    add(SendOp::Send, true);
    add(SendOp::SendImmediate, true);
    add(SendOp::Write, writes);
    add(SendOp::WriteImmediate, writes);
    add(SendOp::Read, rc);
    add(SendOp::CompareSwap, rc);
    add(SendOp::FetchAdd, rc);
    add(SendOp::SendInvalidate, peer_->window_ == Window::Bound);
    return result;
}

bool Endpoint::post_one() {
    Operation op;
    SendWr wr;
    if (window_ == Window::Free) {
        op.op = SendOp::BindWindow;
    } else {
        if (budget_ == 0) return false;
        const std::vector<SendOp> possible = choices();
        if (possible.empty()) return false;
        op.op = possible[context_.random.below(possible.size())];
    }
    wr.op = op.op;
    wr.wr_id = context_.id();
    if (!prepare(op, wr)) return false;
    // The last of a batch must say when it is done, or nobody learns that the others are.
    const bool last = operations_.size() + 1 >= context_.swarm.depth || budget_ <= 1;
    wr.signaled =
        last || op.op == SendOp::BindWindow || !context_.random.chance(context_.swarm.unsignaled);
    wr.solicited = context_.random.chance(0.2);
    wr.remote_srq = peer_->station_.xrc_srq();  // Where it is an XRC request.
    return submit(op, wr);
}

bool Endpoint::prepare(Operation& op, SendWr& wr) {
    op.pattern = {wr.wr_id << 20, 0};
    switch (op.op) {
        case SendOp::BindWindow:
            prepare_bind(wr);
            return true;
        case SendOp::Write:
        case SendOp::WriteImmediate:
            return prepare_write(op, wr);
        case SendOp::Read:
            return prepare_read(op, wr);
        case SendOp::CompareSwap:
        case SendOp::FetchAdd:
            return prepare_atomic(op, wr);
        default:
            break;
    }
    if (op.op == SendOp::SendImmediate) wr.immediate = static_cast<std::uint32_t>(wr.wr_id);
    if (op.op == SendOp::SendInvalidate) wr.invalidate = peer_->window_key_;
    if (plan_.type == QpType::Ud) address_datagram(wr);
    return prepare_data(op, draw_length());
}

std::uint32_t Endpoint::draw_length() {
    Prng& random = context_.random;
    std::uint32_t max = context_.swarm.message_max;
    if (plan_.type == QpType::Ud) max = std::min(max, 256u);
    // An unreliable message is known by its bytes, so it needs some.
    const std::uint32_t min = reliable() ? 0 : 8;
    const std::uint32_t mtu = plan_.options.path_mtu;
    switch (random.below(8)) {
        case 0:
            return min;
        case 1:
            return max;
        case 2:  // About a multiple of the MTU.
            return std::clamp(
                static_cast<std::uint32_t>(mtu * (1 + random.below(3)) + random.below(3) - 1), min,
                max);
        case 3:
        case 4:
            return static_cast<std::uint32_t>(min + random.below(std::min(max, 64u) - min + 1));
        default:
            return static_cast<std::uint32_t>(min + random.below(max - min + 1));
    }
}

bool Endpoint::prepare_data(Operation& op, std::uint32_t length) {
    op.local = locals_.take(context_.random);
    if (!op.local) return false;
    op.range = {locals_.place(*op.local).offset + context_.random.below(16), length};
    context_.checks.shadow.write(node(), op.range, op.pattern);
    return true;
}

bool Endpoint::prepare_write(Operation& op, SendWr& wr) {
    op.target = peer_->targets_.take(context_.random);
    if (!op.target) return false;
    const std::uint32_t length = draw_length();
    if (!prepare_data(op, length)) {
        peer_->targets_.give(*op.target);
        return false;
    }
    op.target_range = {peer_->targets_.place(*op.target).offset + context_.random.below(16),
                       length};
    wr.remote_address = peer_->station_.node().arena().iova(op.target_range.offset);
    const bool through_window =
        reliable() && peer_->window_ == Window::Bound && context_.random.chance(0.5);
    wr.rkey = through_window ? peer_->window_key_ : peer_->target_keys_.rkey;
    if (op.op == SendOp::WriteImmediate) wr.immediate = static_cast<std::uint32_t>(wr.wr_id);
    return true;
}

bool Endpoint::prepare_read(Operation& op, SendWr& wr) {
    op.local = locals_.take(context_.random);
    if (!op.local) return false;
    const std::uint64_t start = locals_.place(*op.local).offset + context_.random.below(16);
    Arena& arena = peer_->station_.node().arena();
    // What an earlier WRITE of ours, still under way, will have put there; else the library.
    const auto write = last_write_ ? operations_.find(*last_write_) : operations_.end();
    if (write != operations_.end() && context_.random.chance(0.5)) {
        op.target = write->second.target;
        peer_->targets_.share(*op.target);
        op.pattern = write->second.pattern;
        op.range = {start, write->second.target_range.length};
        wr.remote_address = arena.iova(write->second.target_range.offset);
        wr.rkey = peer_->target_keys_.rkey;
        return true;
    }
    const std::uint32_t length = draw_length();
    const std::uint64_t skip = context_.random.below(64);
    op.pattern = peer_->station_.library_pattern(skip);
    op.range = {start, length};
    wr.remote_address = arena.iova(peer_->station_.library().offset + skip);
    wr.rkey = peer_->station_.library_key();
    return true;
}

bool Endpoint::prepare_atomic(Operation& op, SendWr& wr) {
    op.local = locals_.take(context_.random);
    if (!op.local) return false;
    op.range = {locals_.place(*op.local).offset, 8};
    Station& there = peer_->station_;
    wr.rkey = there.words_key();
    if (op.op == SendOp::FetchAdd) {
        const auto index = static_cast<std::uint32_t>(context_.random.below(Station::kFetchWords));
        op.word = there.word(index);
        wr.compare_add = 1;
    } else {
        CompareSwapChecker& chain = context_.checks.compare_swap;
        op.word = there.word(peer_->word_);
        op.expected = chain.expected(op.word);
        // Sometimes a comparison that must fail.
        wr.compare_add = context_.random.chance(0.2) ? ~op.expected : op.expected;
        wr.swap = wr.wr_id;
    }
    wr.remote_address = there.node().arena().iova(op.word.offset);
    return true;
}

void Endpoint::prepare_bind(SendWr& wr) {
    const Range region = targets_.region();
    // The consumer owns the low byte of a type 2 window's key and must change it with each bind.
    const RKey next{(window_key_.raw & ~0xffu) | ((window_key_.raw + 1) & 0xffu)};
    wr.bind = {.window = window_key_,
               .region = target_keys_.lkey,
               .address = station_.node().arena().iova(region.offset),
               .length = region.length,
               .access = Access::RemoteWrite | Access::RemoteRead,
               .new_rkey = next,
               .qpn = qp_->qpn(),
               .pd = station_.pd()};
    window_key_ = next;
    window_ = Window::Binding;
}

void Endpoint::address_datagram(SendWr& wr) {
    wr.path = path_between(station_.node(), peer_->station_.node(),
                           static_cast<std::uint16_t>(qp_->qpn().raw));
    wr.destination_qpn = peer_->qp_ != nullptr ? peer_->qp_->qpn() : Qpn{0xabcd};
    wr.qkey = plan_.options.qkey;
}

std::vector<mem::Sge> Endpoint::pieces(Range range) {
    std::vector<mem::Sge> list;
    std::uint64_t left = range.length;
    while (left > 0 || list.empty()) {
        std::uint64_t part = left;
        if (context_.swarm.many_pieces && list.size() < 3 && left > 1)
            part = 1 + context_.random.below(left);
        list.push_back({station_.node().arena().iova(range.end() - left),
                        static_cast<std::uint32_t>(part), local_keys_.lkey});
        left -= part;
    }
    return list;
}

bool Endpoint::submit(Operation& op, SendWr& wr) {
    Node& machine = station_.node();
    const bool is_atomic = op.op == SendOp::CompareSwap || op.op == SendOp::FetchAdd;
    std::vector<mem::Sge> list;
    if (op.local && is_atomic) {
        list = {{machine.arena().iova(op.range.offset), 8, local_keys_.lkey}};
    } else if (op.local) {
        list = pieces(op.range);
    }
    wr.sges = list;
    const bool outbound = op.local && op.op != SendOp::Read && !is_atomic;
    wr.inlined =
        outbound && op.range.length <= 128 && context_.random.chance(context_.swarm.inlined);
    // Inlined bytes are read where they are, by address and not by the region's name for it.
    const auto name_to_address =
        reinterpret_cast<std::uint64_t>(machine.arena().data()) - machine.arena().iova(0);
    if (wr.inlined)
        for (mem::Sge& sge : list) sge.address += name_to_address;

    const auto posted = machine.engine_of(qp_->qpn()).post_send(machine.now(), *qp_, wr);
    if (!posted.has_value()) {
        context_.checks.report.fail(
            CompletionChecker::kName,
            sim::to_string(queue(false)) + ": post refused: " + posted.error().why);
        return false;
    }
    if (op.op != SendOp::BindWindow) --budget_;
    context_.checks.completions.posted(queue(false), wr.wr_id, wr.signaled);
    announce(op, wr);
    open_ranges(op, wr);
    // Inlined bytes are the queue's now: the application may overwrite its own at once.
    if (wr.inlined) context_.checks.shadow.write(node(), op.range, {~wr.wr_id, 0});
    operations_[wr.wr_id] = op;
    const bool is_write = op.op == SendOp::Write || op.op == SendOp::WriteImmediate;
    if (is_write) last_write_ = wr.wr_id;
    return true;
}

void Endpoint::announce(const Operation& op, const SendWr& wr) {
    if (op.op == SendOp::SendInvalidate) peer_->window_ = Window::Invalidating;
    if (peer_->qp_ == nullptr) return;
    Message message;
    message.length = static_cast<std::uint32_t>(op.range.length);
    message.pattern = op.pattern;
    switch (op.op) {
        case SendOp::WriteImmediate:
            message.opcode = WcOpcode::ReceiveWriteImmediate;
            message.immediate = wr.immediate;
            break;
        case SendOp::SendImmediate:
            message.immediate = wr.immediate;
            break;
        case SendOp::SendInvalidate:
            message.invalidate = wr.invalidate.raw;
            break;
        case SendOp::Send:
            break;
        default:
            return;
    }
    context_.checks.messages.sent(peer_->queue(true), message);
}

void Endpoint::open_ranges(const Operation& op, const SendWr& wr) {
    ShadowChecker& shadow = context_.checks.shadow;
    switch (op.op) {
        case SendOp::Write:
        case SendOp::WriteImmediate:
            shadow.open(peer_->node(), peer_->targets_.place(*op.target), op.target_range,
                        op.pattern);
            break;
        case SendOp::Read:
            shadow.open(node(), locals_.place(*op.local), op.range, op.pattern);
            break;
        case SendOp::CompareSwap:
            context_.checks.compare_swap.posted(op.word, wr.compare_add, wr.swap);
            shadow.open_to_all(node(), op.range);
            break;
        case SendOp::FetchAdd:
            shadow.open_to_all(node(), op.range);
            break;
        default:
            break;
    }
}

}  // namespace feroce::sim
