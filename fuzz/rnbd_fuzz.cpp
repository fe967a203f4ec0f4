// A server of disks under clients that send anything: messages of every kind, sound or not, in
// chunks that are written again while requests are worked on, by sessions that come and go, with
// back ends that answer now or later. What reaches a back end must lie on its disk, and what a
// session holds must end with it. The input is a program: a byte says what to do, the next ones are
// its operands.
#include <algorithm>
#include <array>
#include <memory>
#include <memory_resource>
#include <vector>

#include "base/assert.hpp"
#include "block/desk.hpp"
#include "block/messages.hpp"
#include "program.hpp"
#include "rtrs/server_session.hpp"

namespace {

using namespace feroce;
using namespace feroce::block;

constexpr rtrs::Geometry kGeometry{4, 3072, 1024};
constexpr std::uint64_t kDisk = 8192;
constexpr std::size_t kSessions = 3;
constexpr std::array kNames{"disk", "readonly", "private", "none"};

// Messages parse to what they were, or not at all.
template <class Message>
void round_trip(const Result<Message>& parsed) {
    if (!parsed) return;
    std::array<std::byte, Message::kSize> bytes;
    parsed->emit(bytes);
    ASSERT(Message::parse(bytes).value() == *parsed);
}

class SlowBackend final : public Backend {
public:
    Shape shape() override {
        Shape shape;
        shape.size = kDisk;
        shape.discard_granularity = 512;
        return shape;
    }
    void submit(BackendRequest& request) override {
        if (request.kind != IoKind::Flush) {
            ASSERT(request.offset <= kDisk && request.length <= kDisk - request.offset);
            ASSERT(request.length > 0 && request.offset % 512 == 0 && request.length % 512 == 0);
        }
        const bool carries = request.kind == IoKind::Read || request.kind == IoKind::Write;
        ASSERT(request.data.size() == (carries ? request.length : 0));
        kept.push_back(&request);
        if (answers_at_once) answer(kept.size() - 1, 0);
    }
    void answer(std::size_t index, int error) {
        BackendRequest* const request = kept[index];
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(index));
        if (request->kind == IoKind::Read)
            std::fill(request->data.begin(), request->data.end(), std::byte{1});
        request->done(*request, error);
    }

    std::vector<BackendRequest*> kept;
    bool answers_at_once = false;
};

struct NoPath final : rtrs::AnsweringPath {
    void answer(const rtrs::Answer&) override {}
    void close(const char*) override {}
    void confirm(const rtrs::Fence&) override {}
    bool tell_overdue(const rtrs::Overdue&) override { return true; }
};

class FuzzedServer {
public:
    explicit FuzzedServer(ByteView input) : program_(input) {
        ASSERT(desk_.add({"disk", backend_}).has_value());
        ASSERT(desk_.add({"readonly", backend_, true}).has_value());
        ASSERT(desk_.add({"private", backend_, false, {"s1"}, {"10.0.0.0/8"}}).has_value());
    }
    void run() {
        while (!program_.done()) step();
        for (std::size_t i = 0; i < kSessions; ++i) end(i);
        while (!backend_->kept.empty()) backend_->answer(0, 0);
        ASSERT(desk_.statistics().open == 0);
    }

private:
    void step() {
        const std::size_t which = program_.number(1) % kSessions;
        switch (program_.number(1) % 7) {
            case 0:
                return send(which, sound_io());
            case 1:
                return send(which, sound_open());
            case 2: {
                const ByteView raw = program_.bytes(program_.number(1));
                return send(which, {raw.begin(), raw.end()});
            }
            case 3:
                return end(which);
            case 4:
                if (!backend_->kept.empty())
                    backend_->answer(program_.number(1) % backend_->kept.size(),
                                     static_cast<int>(program_.number(1)));
                return;
            case 5:
                return scribble(which);
            default:
                backend_->answers_at_once = !backend_->answers_at_once;
        }
    }
    std::vector<std::byte> sound_io() {
        IoRequest io;
        io.device = device_number(kNames[program_.number(1) % kNames.size()]);
        io.kind = static_cast<IoKind>(program_.number(1) % 6);
        io.sector = program_.number(1);
        io.size = program_.number(1) * 64;
        std::vector<std::byte> out(IoRequest::kSize);
        io.emit(std::span<std::byte, IoRequest::kSize>(out));
        return out;
    }
    std::vector<std::byte> sound_open() {
        const OpenRequest open{static_cast<AccessMode>(program_.number(1) % 3),
                               kNames[program_.number(1) % kNames.size()]};
        std::vector<std::byte> out(OpenRequest::kSize);
        open.emit(std::span<std::byte, OpenRequest::kSize>(out));
        return out;
    }
    rtrs::ServerSession& session(std::size_t which) {
        if (sessions_[which] == nullptr) {
            sessions_[which] = std::make_shared<rtrs::ServerSession>(
                rtrs::ServerSession::Identity{{}, ++last_, false}, kGeometry,
                rtrs::ServerSession::Surroundings{&handler_, &counted_, nullptr});
            ASSERT(sessions_[which]->furnish(*std::pmr::new_delete_resource()));
            sessions_[which]->add_path(1, path_);
            const std::string name = "s" + std::to_string(which);
            sessions_[which]->set_name(name);
            ASSERT(desk_.admit({last_, name, which == 2 ? "10.1.2.3" : "192.168.0.1"}) == 0);
        }
        return *sessions_[which];
    }
    // A request in a chunk: data, message, header.
    void send(std::size_t which, const std::vector<std::byte>& message) {
        parse(message);
        rtrs::ServerSession& to = session(which);
        const auto chunk = static_cast<std::uint16_t>(program_.number(1) % kGeometry.queue_depth);
        const std::size_t data = program_.number(1) * 64 % 2048;
        rtrs::RequestHeader header;
        header.direction =
            program_.number(1) % 2 == 0 ? rtrs::Direction::Write : rtrs::Direction::Read;
        header.message_size = static_cast<std::uint16_t>(message.size());
        const ByteSpan at = to.chunk(chunk);
        std::copy(message.begin(), message.end(), at.begin() + static_cast<std::ptrdiff_t>(data));
        const auto offset = static_cast<std::uint32_t>(data + message.size());
        header.emit(at.subspan(offset));
        // A chunk that is in use is refused.
        (void)to.arrived(1, 0, {chunk, offset});
    }
    static void parse(ByteView message) {
        round_trip(OpenRequest::parse(message));
        round_trip(OpenResponse::parse(message));
        round_trip(CloseRequest::parse(message));
        round_trip(IoRequest::parse(message));
        for (const auto type : {MessageType::SessionInfo, MessageType::SessionInfoResponse})
            if (const auto info = SessionInfo::parse(message, type)) {
                std::array<std::byte, SessionInfo::kSize> bytes;
                info->emit(bytes, type);
                ASSERT(SessionInfo::parse(bytes, type).value() == *info);
            }
    }
    void scribble(std::size_t which) {
        const ByteSpan chunk = session(which).chunk(program_.number(1) % kGeometry.queue_depth);
        const std::size_t at = program_.number(2) % chunk.size();
        const ByteView bytes = program_.bytes(program_.number(1) % (chunk.size() - at));
        std::copy(bytes.begin(), bytes.end(), chunk.begin() + static_cast<std::ptrdiff_t>(at));
    }
    void end(std::size_t which) {
        if (sessions_[which] == nullptr) return;
        desk_.end_session(sessions_[which]->identity().epoch);
        sessions_[which]->abandon();
        sessions_[which].reset();
    }

    fuzz::Program program_;
    std::shared_ptr<SlowBackend> backend_ = std::make_shared<SlowBackend>();
    Desk desk_{3072};
    rtrs::RequestHandler handler_ = [this](rtrs::ServerRequest& request) { desk_.handle(request); };
    rtrs::ServerStatistics counted_;
    NoPath path_;
    std::uint64_t last_ = 0;
    std::array<std::shared_ptr<rtrs::ServerSession>, kSessions> sessions_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    FuzzedServer(ByteView(reinterpret_cast<const std::byte*>(bytes), size)).run();
    return 0;
}
