// See request_sender.hpp.
#include "rtrs/request_sender.hpp"

#include <endian.h>

#include <algorithm>
#include <array>

#include "rtrs/request_header.hpp"

namespace feroce::rtrs {

namespace {

// The pieces of the data as the device sees them.
struct Pieces {
    std::array<ibv_sge, kMaxGather> sges;
    std::array<std::uint32_t, kMaxGather> rkeys;
    std::size_t count = 0;

    void add(ByteView bytes, const ibv_mr& region) {
        sges[count] = {address_of(bytes), static_cast<std::uint32_t>(bytes.size()), region.lkey};
        rkeys[count++] = region.rkey;
    }
};

std::size_t max_pieces(const Request& request, bool extended) {
    if (request.direction == Direction::Write) return kMaxGather - 1;  // One is for the header.
    return extended ? std::min<std::size_t>(kMaxReadSegments, kMaxGather) : kMaxKernelReadSegments;
}

// The caller's own memory, if all of it is registered and there are not too many pieces.
bool direct_pieces(const Request& request, const SendPlan& plan, Pieces& pieces) {
    const std::size_t limit = max_pieces(request, plan.extended);
    for (std::size_t i = 0; i < request.segment_count(); ++i) {
        const ByteView bytes = request.segment(i);
        if (bytes.empty()) continue;
        const ibv_mr* const region = plan.areas.region_of(bytes);
        if (region == nullptr || pieces.count == limit) return false;
        pieces.add(bytes, *region);
    }
    return true;
}

bool staged_pieces(Request& request, const SendPlan& plan, Pieces& pieces) {
    const auto staging = plan.memory.staging(request.permit);
    const ibv_mr* const region = plan.areas.region(staging.id);
    if (region == nullptr) return false;
    request.staged = true;
    auto out = staging.bytes.begin();
    if (request.direction == Direction::Write)
        for (std::size_t i = 0; i < request.segment_count(); ++i) {
            const ByteView bytes = request.segment(i);
            out = std::copy(bytes.begin(), bytes.end(), out);
        }
    pieces.add(staging.bytes.first(request.data_size), *region);
    return true;
}

RequestHeader header_of(const Request& request, const SendPlan& plan, const Pieces& pieces) {
    RequestHeader header;
    header.direction = request.direction;
    header.message_size = static_cast<std::uint16_t>(request.message.size());
    if (plan.extended) header.sequence = request.sequence;
    if (request.direction == Direction::Write) return header;
    header.segment_count = static_cast<std::uint16_t>(pieces.count);
    for (std::size_t i = 0; i < pieces.count; ++i)
        header.segments[i] = {pieces.sges[i].addr, pieces.rkeys[i], pieces.sges[i].length};
    return header;
}

}  // namespace

Result<void> check_request(Request& request, const Geometry& geometry, bool extended) {
    request.data_size = 0;
    for (std::size_t i = 0; i < request.segment_count(); ++i)
        request.data_size += request.segment(i).size();
    const std::size_t largest = RequestHeader::size_of(
        request.direction, std::min(request.segment_count(), max_pieces(request, extended)),
        extended);
    if (request.data_size > geometry.max_io_size)
        return Error{EMSGSIZE,
                     "the data exceeds what one request of this session carries: split it"};
    if (request.message.size() + largest > geometry.max_header_size ||
        request.message.size() > UINT16_MAX)
        return Error{EMSGSIZE, "the message exceeds what one request of this session carries"};
    return {};
}

bool send_request(Request& request, const SendPlan& plan, const RemoteChunk& chunk,
                  Channel& channel) {
    Pieces pieces;
    request.staged = false;
    if (request.data_size > 0 && !direct_pieces(request, plan, pieces)) {
        pieces.count = 0;
        if (!staged_pieces(request, plan, pieces)) return false;
    }
    const ibv_mr* const slots = plan.areas.headers();
    if (slots == nullptr) return false;
    const RequestHeader header = header_of(request, plan, pieces);
    const ByteSpan slot =
        plan.memory.header_slot(request.permit, request.message.size() + header.size());
    std::copy(request.message.begin(), request.message.end(), slot.begin());
    header.emit(slot.subspan(request.message.size()));

    const bool read = request.direction == Direction::Read;
    if (read) pieces.count = 0;  // They travel as descriptors.
    pieces.add(slot.first(request.message.size() + header.size()), *slots);
    const RequestPlace place{
        request.permit, static_cast<std::uint32_t>(request.data_size + request.message.size())};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htobe32(place.immediate(plan.geometry).raw());
    wr.sg_list = pieces.sges.data();
    wr.num_sge = static_cast<int>(pieces.count);
    wr.wr.rdma.remote_addr = chunk.address + (read ? request.data_size : 0);
    wr.wr.rdma.rkey = chunk.key;
    const bool signal = request.limited && !read && !request.staged && request.data_size > 0;
    if (plan.extended)
        channel.post_request(wr, signal);
    else
        channel.post({&wr, 1}, signal);
    request.position = channel.posted();
    return true;
}

void deliver_staged(const Request& request, SessionMemory& memory) {
    if (!request.staged || request.direction != Direction::Read) return;
    auto from = memory.staging(request.permit).bytes.begin();
    for (const Segment segment : request.read_into) {
        std::copy_n(from, segment.size(), segment.begin());
        from += static_cast<std::ptrdiff_t>(segment.size());
    }
}

}  // namespace feroce::rtrs
