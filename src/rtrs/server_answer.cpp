// What a ServerPath sends: INFO, answers in their several forms, confirmations of fences.
#include <array>

#include "rtrs/answer_chain.hpp"
#include "rtrs/server_path.hpp"

namespace feroce::rtrs {

namespace {

constexpr std::size_t kLengthSize = 4;  // Of the note that says how long a read is.
constexpr std::size_t kMaxInlineNote = KeyResponse::kSize + kLengthSize;

bool sends_data(const Answer& answer) {
    return answer.error == 0 && answer.header.segment_count > 0;
}

}  // namespace

void ServerPath::send_info() {
    Channel& service = *lines_[0].channel;
    const Geometry& geometry = session_->geometry();
    InfoResponse info;
    const auto chunk_size = static_cast<std::uint32_t>(geometry.chunk_size());
    if (windows_.empty()) {
        info.runs.push_back({address_of(session_->memory()), region_->raw()->rkey,
                             static_cast<std::uint32_t>(geometry.total_size())});
    } else {
        for (std::uint16_t i = 0; i < geometry.queue_depth; ++i) {
            bind_chunk(service, i, true, nullptr);
            info.runs.push_back(
                {address_of(session_->chunk(i)), windows_[i].raw()->rkey, chunk_size});
        }
    }
    if (closed()) return;
    info.emit(service.outbox());
    service.post_message(info.size());
}

// A fresh key for the chunk, or none at all: the old one is dead from here on.
void ServerPath::bind_chunk(Channel& channel, std::uint16_t chunk, bool open,
                            rdma::Operation* done) {
    const ByteView bytes = session_->chunk(chunk);
    ibv_mw_bind_info where{};
    where.mr = region_->raw();
    where.addr = address_of(bytes);
    where.length = open ? bytes.size() : 0;
    where.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    channel.bind(windows_[chunk].raw(), where, done);
}

std::size_t ServerPath::room_for(const Answer& answer) const {
    return answer.header.segment_count + std::size_t{3};
}

void ServerPath::answer(const Answer& answer) {
    if (closed()) return;
    Channel& channel = *lines_[answer.connection].channel;
    std::deque<Answer>& waiting = waiting_[answer.connection];
    if (!waiting.empty() || !channel.has_room(room_for(answer)))
        waiting.push_back(answer);
    else
        send_answer(channel, answer);
}

void ServerPath::on_room(Channel& channel) {
    heartbeat_.on_acknowledged();
    if (channel.number() == 0) on_service_acknowledged(channel);
    if (state_ != State::Connected) return;
    std::deque<Answer>& waiting = waiting_[channel.number()];
    while (!closed() && !waiting.empty() && channel.has_room(room_for(waiting.front()))) {
        const Answer next = waiting.front();
        waiting.pop_front();
        send_answer(channel, next);
    }
    while (!closed() && channel.number() == 0 && !confirmations_.empty() && channel.has_room(1)) {
        const Fence fence = confirmations_.back();
        confirmations_.pop_back();
        confirm(fence);
    }
}

void ServerPath::on_service_acknowledged(const Channel& service) {
    const std::uint64_t up_to = service.acknowledged();
    if (state_ == State::Refused && up_to >= refusal_at_) return close(refusal_.c_str());
    if (probe_ == 0 || up_to < probe_ || !session_->identity().extended) return;
    probe_ = 0;
    owner_.on_sign(*this);
}

void ServerPath::send_answer(Channel& channel, const Answer& answer) {
    AnswerChain chain;
    const RequestHeader& header = answer.header;
    std::uint64_t from = address_of(session_->chunk(answer.chunk));
    for (std::size_t i = 0; sends_data(answer) && i < header.segment_count; ++i) {
        chain.add_data(from, region_->raw()->lkey, header.segments[i]);
        from += header.segments[i].length;
    }
    const bool invalidates = header.need_invalidate && header.segment_count > 0;
    if (invalidates) chain.add_invalidate(header.segments[0].key);
    const Immediate response = Response{answer.chunk, answer.error, invalidates}.immediate();
    if (windows_.empty() && !answer.has_note) {
        // Between peers of ours the last of the data says besides that it is the last.
        chain.finish_with(response,
                          sends_data(answer) && session_->identity().extended && !invalidates);
        return channel.post(chain.all());
    }
    // The fresh key is bound on this queue pair before the response that tells it.
    if (!windows_.empty()) bind_chunk(channel, answer.chunk, true, nullptr);
    if (closed()) return;
    std::array<std::byte, kMaxInlineNote> room;
    const ByteView beside = beside_immediate(answer, room);
    const bool text = answer.has_note && answer.error != 0;
    chain.finish_with(response, beside, text ? region_->raw()->lkey : 0);
    channel.post(chain.all());
}

// What goes with a response: the fresh key if there is one, then the note. A text is sent from the
// chunk, all else from `room`.
ByteView ServerPath::beside_immediate(const Answer& answer, ByteSpan room) {
    const std::size_t key_size = windows_.empty() ? 0 : KeyResponse::kSize;
    const bool text = answer.has_note && answer.error != 0;
    const ByteSpan out = text ? session_->chunk(answer.chunk) : room;
    const std::size_t note_size = text ? answer.note : answer.has_note ? kLengthSize : 0;
    if (key_size != 0) {
        // The text begins the chunk; a repeated answer finds it there again.
        const ByteSpan whole = out.subspan(text ? kMaxNote : 0);
        KeyResponse{answer.chunk, windows_[answer.chunk].raw()->rkey}.emit(
            whole.first<KeyResponse::kSize>());
        if (text) std::copy_n(out.begin(), note_size, whole.begin() + KeyResponse::kSize);
        if (note_size == kLengthSize && !text) store_le32(whole.subspan<8, 4>(), answer.note);
        return whole.first(key_size + note_size);
    }
    if (!text) store_le32(out.first<kLengthSize>(), answer.note);
    return out.first(note_size);
}

bool ServerPath::tell_overdue(const Overdue& overdue) {
    if (state_ != State::Connected || !lines_[0].channel->has_room(1)) return false;
    std::array<std::byte, Overdue::kSize> bytes;
    overdue.emit(bytes);
    lines_[0].channel->post_inline_message(bytes);
    return true;
}

void ServerPath::confirm(const Fence& fence) {
    if (closed()) return;
    Channel& service = *lines_[0].channel;
    if (!service.has_room(1)) return confirmations_.push_back(fence);
    std::array<std::byte, Fence::kSize> bytes;
    fence.emit(bytes, MessageType::FenceResponse);
    service.post_inline_message(bytes);
}

}  // namespace feroce::rtrs
