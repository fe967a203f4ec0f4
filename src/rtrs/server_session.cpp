// See server_session.hpp.
#include "rtrs/server_session.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/assert.hpp"

namespace feroce::rtrs {

namespace {
constexpr std::size_t kMemoryAlignment = 4096;  // What storage wants of memory that it reads into.
constexpr int kMaxError = 511;                  // Nine bits on the wire.

}  // namespace

ServerSession::ServerSession(const Identity& identity, const Geometry& geometry,
                             const Surroundings& around)
    : identity_(identity), geometry_(geometry), around_(around) {}

ServerSession::~ServerSession() {
    if (resource_ != nullptr)
        resource_->deallocate(memory_.data(), memory_.size(), kMemoryAlignment);
}

bool ServerSession::furnish(std::pmr::memory_resource& resource) try {
    ASSERT(!furnished());
    const std::size_t size = geometry_.total_size();
    table_ = ChunkTable(geometry_.queue_depth);
    slots_.resize(geometry_.queue_depth);
    for (std::uint16_t i = 0; i < geometry_.queue_depth; ++i) {
        slots_[i].request.session_ = this;
        slots_[i].request.chunk_ = i;
    }
    memory_ = {static_cast<std::byte*>(resource.allocate(size, kMemoryAlignment)), size};
    resource_ = &resource;
    std::memset(memory_.data(), 0, size);  // A client can make us send it back unwritten.
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

void ServerSession::abandon() {
    around_ = {};
    paths_.clear();
    drains_.clear();
}

void ServerSession::path_closed(PathNumber number) {
    paths_.erase(number);
    table_.path_closed(number);
    std::erase_if(drains_, [number](const Drain& drain) { return drain.asker == number; });
}

Result<void> ServerSession::arrived(PathNumber path, std::uint16_t connection,
                                    const RequestPlace& place) {
    // The client may write while we read, so the header is read once, from a copy.
    std::array<std::byte, RequestHeader::kMaxSize> room;
    const ByteView seen =
        RequestHeader::copy(chunk(place.chunk).subspan(place.header_offset), room);
    Answer answer;
    answer.chunk = place.chunk;
    answer.connection = connection;
    const RequestHeader& header = answer.header;
    TRY(RequestHeader::parse(seen, place.header_offset, identity_.extended, answer.header));
    Slot& slot = slots_[place.chunk];
    switch (table_.admit(place.chunk, header.sequence, path)) {
        case ChunkTable::Verdict::Execute:
            answer.copy_to(slot.answer);
            execute(slot, place.header_offset);
            break;
        case ChunkTable::Verdict::Join:
            ++around_.statistics->joins;
            answer.copy_to(slot.answer);
            slot.ended = false;
            if (slot.overdue) end_overdue(slot);
            break;
        case ChunkTable::Verdict::Replay:
            ++around_.statistics->replays;
            slot.answer.connection = connection;
            header.copy_to(slot.answer.header);
            slot.answer.error = table_.result(place.chunk);
            if (slot.answer.error != 0) slot.answer.has_note = false;  // Written over.
            send_answer(path, slot.answer);
            break;
        case ChunkTable::Verdict::Hold: {
            answer.copy_to(slot.held);
            slot.held_offset = place.header_offset;
            // Through the old path the client could still write into the chunk.
            const auto old = paths_.find(table_.path_of(place.chunk));
            if (old != paths_.end()) old->second->close("its request was repeated on another path");
            break;
        }
        case ChunkTable::Verdict::Stale:
            ++around_.statistics->stale;
            break;
        case ChunkTable::Verdict::Busy:
            return Error{EPROTO, "a request uses a chunk whose last request has not ended"};
    }
    return {};
}

void ServerSession::execute(Slot& slot, std::uint32_t header_offset) {
    ++running_;
    const RequestHeader& header = slot.answer.header;
    const std::size_t data_size = header_offset - header.message_size;
    const ByteSpan all = chunk(slot.answer.chunk);
    slot.request.direction_ = header.direction;
    slot.request.data_ = all.first(data_size);
    slot.request.message_ = all.subspan(data_size, header.message_size);
    ++around_.statistics->requests;
    call_handler(slot);
    // Not for requests that are answered at once: the caller holds the session meanwhile.
    if (running_ != 0 && !self_) self_ = shared_from_this();
}

// What it throws fails its own request, and goes to the loop as all that user code throws.
void ServerSession::call_handler(Slot& slot) {
    const std::uint64_t call = ++slot.calls;
    slot.answered = slot.overdue = slot.ended = false;
    slot.since = tick_;
    try {
        (*around_.handler)(slot.request);
    } catch (...) {
        identity_.loop->throw_later(std::current_exception());
        if (slot.calls == call && !slot.answered) slot.request.respond(EIO);
    }
}

// The text goes into the chunk, which its handler is done with: no memory is needed for it. An
// answer that is repeated has none: the client wrote its request again, perhaps over it.
void ServerSession::add_note(Slot& slot, std::string_view text, std::optional<std::size_t> filled) {
    Answer& answer = slot.answer;
    if (!identity_.notes) return;
    if (answer.error != 0) {
        const ByteSpan room = chunk(answer.chunk);
        // ServerPath may need as much again to put a key before it.
        const std::size_t fits = room.size() < 2 * kMaxNote + KeyResponse::kSize ? 0 : kMaxNote;
        const std::size_t size = std::min(text.size(), fits);
        std::copy_n(std::as_bytes(std::span(text)).begin(), size, room.begin());
        answer.note = static_cast<std::uint32_t>(size);
        answer.has_note = size > 0;
    } else if (filled && *filled < slot.request.data_.size()) {
        answer.note = static_cast<std::uint32_t>(*filled);
        answer.has_note = true;
    }
}

void ServerSession::respond(std::uint16_t chunk, int error, std::string_view text,
                            std::optional<std::size_t> filled) {
    Slot& slot = slots_[chunk];
    if (slot.ended) {  // Its caller has gone: no data may be written into its memory.
        error = ETIMEDOUT;
        text = {};
    }
    const auto finished = table_.finish(chunk, error);
    slot.answered = true;
    slot.answer.error = error;
    slot.answer.has_note = false;
    add_note(slot, text, filled);
    // Kept alive to the end of this function whatever the answer sets off.
    const std::shared_ptr<ServerSession> self = --running_ == 0 ? std::move(self_) : self_;
    if (finished.answer_to != kNoPath) send_answer(finished.answer_to, slot.answer);
    if (finished.release_held && around_.handler != nullptr) {
        slot.held.copy_to(slot.answer);
        execute(slot, slot.held_offset);
    }
    confirm_drained();
    if (running_ == 0 && paths_.empty() && around_.owner != nullptr) around_.owner->on_idle();
}

void ServerSession::send_answer(PathNumber path, const Answer& answer) {
    const auto found = paths_.find(path);
    if (found != paths_.end()) found->second->answer(answer);
}

void ServerSession::fenced(const Fence& fence, PathNumber asker) {
    ++around_.statistics->fences;
    drains_.push_back({fence, asker});
    confirm_drained();
}

void ServerSession::confirm_drained() {
    if (drains_.empty()) return;
    const bool drained = table_.orphans() == 0;
    std::vector<Drain> ready;
    std::erase_if(drains_, [&](const Drain& drain) {
        if (drain.fence.drain && !drained) return false;
        ready.push_back(drain);
        return true;
    });
    for (const Drain& drain : ready) {
        const auto asker = paths_.find(drain.asker);
        if (asker != paths_.end()) asker->second->confirm(drain.fence);
    }
}

// Ticks instead of times: a request costs no look at the clock, and is found at most a tick late.
void ServerSession::look_for_overdue() {
    ++tick_;
    if (running_ == 0) return;
    for (Slot& slot : slots_) {
        if (!table_.running(slot.request.chunk_) || slot.ended) continue;
        if (tick_ - slot.since > kTicks) end_overdue(slot);
    }
}

void ServerSession::end_overdue(Slot& slot) {
    const std::uint16_t chunk = slot.request.chunk_;
    if (!std::exchange(slot.overdue, true)) {
        ++around_.statistics->overdue;
        std::fprintf(stderr,
                     "feroce: a handler has not answered a request of the session '%s' within "
                     "answer_within%s\n",
                     name_.c_str(), identity_.notes ? "; the client gets ETIMEDOUT" : "");
    }
    const auto path = paths_.find(table_.path_of(chunk));
    if (!identity_.notes || path == paths_.end()) return;
    slot.ended = path->second->tell_overdue({chunk, slot.answer.header.sequence});
}

const std::string& ServerRequest::session_name() const {
    return session_->name();
}

std::uint64_t ServerRequest::session() const {
    return session_->identity().epoch;
}

rdma::Loop& ServerRequest::loop() const {
    return *session_->identity().loop;
}

void ServerRequest::respond(int error) {
    ASSERT(session_ != nullptr && error >= 0);
    session_->respond(chunk_, error);
}

void ServerRequest::respond(const rdma::Error& error) {
    const int code = error.code > 0 && error.code <= kMaxError ? error.code : EIO;
    session_->respond(chunk_, code, error.why);
}

void ServerRequest::respond_filled(std::size_t filled) {
    const std::size_t size = std::min(filled, data_.size());
    std::fill(data_.begin() + static_cast<std::ptrdiff_t>(size), data_.end(), std::byte{0});
    session_->respond(chunk_, 0, {}, size);
}

Responder ServerRequest::defer() {
    return Responder(*this);
}

void ServerRequest::drop() {
    if (session_->around_.statistics != nullptr) ++session_->around_.statistics->dropped;
    respond(rdma::Error(EIO, "the handler dropped the request without an answer"));
}

Responder::~Responder() {
    if (request_ == nullptr) return;
    std::fprintf(stderr,
                 "feroce: a handler dropped a request of the session '%s' without an answer; the "
                 "client gets EIO\n",
                 request_->session_name().c_str());
    request_->drop();
}

}  // namespace feroce::rtrs
