#include "transport/gather_ahead.hpp"

#include <algorithm>
#include <utility>

#include "transport/queue_pair.hpp"

namespace feroce::transport {

mem::Fault GatherAhead::fill(std::uint64_t index, std::uint64_t offset, ByteSpan into) const {
    std::size_t done = 0;
    for (const Source& source : sources_) {
        const std::uint64_t at = offset + done;
        if (done == into.size()) break;
        if (!source.has(index, at)) continue;
        if (!source.is_over()) return mem::Fault::Far;
        const mem::Fault fault = source.group == nullptr ? source.fault : source.group->fault;
        if (fault != mem::Fault::None) return fault;
        const std::size_t size =
            std::min<std::size_t>(into.size() - done, source.offset + source.size - at);
        const ByteView bytes = source.group->bytes().subspan(at - source.offset, size);
        std::copy(bytes.begin(), bytes.end(), into.begin() + static_cast<std::ptrdiff_t>(done));
        done += size;
    }
    return done == into.size() ? mem::Fault::None : mem::Fault::Far;
}

void GatherAhead::forget_first() {
    bytes_ -= sources_.front().size;
    sources_.pop_front();
}

void GatherAhead::plan(QueuePair& qp, std::uint64_t index, std::uint64_t offset) {
    offset -= offset % mem::FarMemory::kPieceBytes;
    while (!sources_.empty() && !sources_.front().has(index, offset)) forget_first();
    const SendQueue& queue = qp.send_queue();
    std::uint64_t at = index, next = offset;
    if (!sources_.empty()) {
        at = sources_.back().index;
        next = sources_.back().offset + sources_.back().size;
    }
    for (; at != queue.tail(); ++at, next = 0) {
        const SendWqe& wqe = queue.at(at);
        const bool is_later = at != index;
        if (is_later && (wqe.fence || is_local(wqe.op))) return;
        if (needs_response(wqe.op) || wqe.inlined) continue;
        if (is_later && next == 0 &&
            !has_far(qp.services().memory, qp.init().pd, queue.sges(at), {}))
            continue;
        while (next < wqe.length) {
            if (sources_.size() == kAheadPieces || bytes_ >= kAheadBytes) return;
            begin(qp, at, next);
            next += sources_.back().size;
        }
    }
}

void GatherAhead::begin(QueuePair& qp, std::uint64_t index, std::uint64_t offset) {
    const auto sges = qp.send_queue().sges(index);
    const FarList list{qp.init().pd, {}, false, {sges.begin(), sges.end()}};
    Source source;
    source.index = index;
    source.offset = offset;
    source.size = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        mem::FarMemory::kPieceBytes, qp.send_queue().at(index).length - offset));
    source.fault = make_group(qp, list, offset, source.size, source.group);
    if (source.fault == mem::Fault::None)
        source.fault = start_gather(qp, list, offset, source.size, source.group);
    if (source.fault != mem::Fault::None) source.group = nullptr;
    sources_.push_back(std::move(source));
    bytes_ += sources_.back().size;
}

}  // namespace feroce::transport
