// A server's session under clients that write anything into its chunks and announce any place as a
// request, through paths that come, fence each other and go, while handlers answer now, later or
// after the server's end. The input is a program: one byte says what to do, the next ones are its
// operands.
#include <map>
#include <memory>
#include <memory_resource>
#include <vector>

#include "base/assert.hpp"
#include "program.hpp"
#include "rtrs/server_session.hpp"

namespace {

using namespace feroce;
using namespace feroce::rtrs;

constexpr Geometry kGeometry{4, 512, 512};
constexpr PathNumber kPaths = 4;

struct FakePath final : AnsweringPath {
    bool asked_to_close = false;
    std::uint64_t answered = 0;

    void answer(const Answer& answer) override {
        ASSERT(answer.chunk < kGeometry.queue_depth);
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < answer.header.segment_count; ++i)
            sum += answer.header.segments[i].length;
        ASSERT(sum <= kGeometry.chunk_size());  // Nothing of another chunk is sent.
        ++answered;
    }
    void close(const char*) override { asked_to_close = true; }
    void confirm(const Fence&) override { ++answered; }
    bool tell_overdue(const Overdue&) override { return true; }
};

class FuzzedServer {
public:
    FuzzedServer(ByteView input, bool extended)
        : program_(input),
          session_(std::make_shared<ServerSession>(
              ServerSession::Identity{{}, 1, extended}, kGeometry,
              ServerSession::Surroundings{&handler_, &statistics_, nullptr})) {
        ASSERT(session_->furnish(*std::pmr::new_delete_resource()));
    }

    void run() {
        while (!program_.done()) {
            step();
            // As a server does it: outside of what made a path close.
            std::vector<PathNumber> closing;
            for (const auto& [number, path] : paths_)
                if (path->asked_to_close) closing.push_back(number);
            for (const PathNumber number : closing) close(number);
        }
        session_->abandon();
        session_.reset();
        while (!kept_.empty()) answer(0, 0);  // The last of them lets the session go.
    }

private:
    void step() {
        switch (program_.number(1) % 6) {
            case 0:
                return write();
            case 1:
                return arrive();
            case 2:
                return close(path());
            case 3:
                return session_->fenced({{}, 0, program_.number(1) % 2 == 1}, path());
            case 4:
                if (!kept_.empty()) answer(program_.number(1) % kept_.size(), program_.number(1));
                return;
            default:
                answers_at_once_ = !answers_at_once_;
        }
    }
    void write() {
        const auto chunk = session_->chunk(program_.number(1) % kGeometry.queue_depth);
        const std::size_t at = program_.number(2) % chunk.size();
        const ByteView bytes = program_.bytes(program_.number(1) % (chunk.size() - at));
        std::copy(bytes.begin(), bytes.end(), chunk.begin() + static_cast<std::ptrdiff_t>(at));
    }
    void arrive() {
        const PathNumber through = path();
        const auto place =
            RequestPlace::parse(kGeometry, program_.number(1) % 4 << kGeometry.offset_bits() |
                                               program_.number(2) % 1100);
        if (!place) return close(through);
        if (!session_->arrived(through, 0, *place)) close(through);
    }
    PathNumber path() {
        const PathNumber slot = program_.number(1) % kPaths;
        if (numbers_[slot] == kNoPath) {
            numbers_[slot] = ++last_;
            paths_[last_] = std::make_unique<FakePath>();
            session_->add_path(last_, *paths_[last_]);
        }
        return numbers_[slot];
    }
    void close(PathNumber number) {
        session_->path_closed(number);
        paths_.erase(number);
        std::replace(std::begin(numbers_), std::end(numbers_), number, kNoPath);
    }
    void answer(std::size_t index, std::uint32_t error) {
        ServerRequest* const request = kept_[index];
        kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(index));
        ASSERT(request->message().size() + request->data().size() <= kGeometry.chunk_size());
        std::fill(request->data().begin(), request->data().end(), std::byte{1});
        request->respond(static_cast<int>(error % 512));
    }

    fuzz::Program program_;
    std::vector<ServerRequest*> kept_;
    bool answers_at_once_ = false;
    RequestHandler handler_ = [this](ServerRequest& request) {
        kept_.push_back(&request);
        if (answers_at_once_) answer(kept_.size() - 1, 0);
    };
    ServerStatistics statistics_;
    PathNumber numbers_[kPaths]{};
    PathNumber last_ = kNoPath;
    std::map<PathNumber, std::unique_ptr<FakePath>> paths_;
    std::shared_ptr<ServerSession> session_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const ByteView data(reinterpret_cast<const std::byte*>(bytes), size);
    if (data.empty()) return 0;
    FuzzedServer(data.subspan(1), data[0] != std::byte{0}).run();
    return 0;
}
