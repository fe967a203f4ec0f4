// See disk_core.hpp.
#include "block/disk_core.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "feroce/task_group.hpp"

namespace feroce::block {

namespace {

// Between two of them the server must have forgotten the disk again.
constexpr int kMaxReopens = 16;

// A message of the kernel's, and what servers of ours want to know behind it.
template <class Content>
struct Message {
    std::span<const std::byte> fill(const Content& content, const Grant& grant, bool extended) {
        content.emit(std::span(bytes).template first<Content::kSize>());
        grant.emit(std::span(bytes).template last<Grant::kSize>());
        return std::span(bytes).first(extended ? bytes.size() : Content::kSize);
    }
    std::array<std::byte, Content::kSize + Grant::kSize> bytes;
};

// Its success says that something is durable.
bool promises(const IoRequest& io) {
    return io.kind == IoKind::Flush || io.fua || io.preflush;
}

// Of a back end that has lost something, not of a network.
bool is_loss(int code) {
    return code == EIO || code == ENOSPC || code == EDQUOT || code == EREMOTEIO;
}

// What is being handled, as a failure of the request that threw it.
rdma::Error thrown_error() {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return {ENOMEM, "there is not enough memory"};
    } catch (const std::exception& thrown) {
        return {EIO, thrown.what()};
    } catch (...) {
        return {EIO, "something was thrown"};
    }
}

bool is_write(IoKind kind) {
    return kind == IoKind::Write || kind == IoKind::WriteZeroes || kind == IoKind::Discard;
}

}  // namespace

struct DiskCore::Pieces {
    rdma::Result<> result;
};

DiskCore::DiskCore(rdma::Loop& loop, rtrs::Session session, std::string name, AccessMode access,
                   std::uint32_t handle)
    : loop_(loop),
      session_(std::move(session)),
      name_(std::move(name)),
      access_(access),
      changed_(loop) {
    grant_.handle = handle;
}

DiskCore::~DiskCore() {
    if (life_ == 0 || closed_) return;
    try {
        loop_.spawn(say_goodbye(session_, device_, grant_));
    } catch (...) {
        // The end of the session closes the disk, too.
    }
}

rdma::Task<rdma::Result<>> DiskCore::ask_to_close(rtrs::Session session, std::uint32_t device,
                                                  Grant grant) {
    Message<CloseRequest> message;
    const auto bytes = message.fill(CloseRequest{device}, grant, session.extended());
    co_return co_await session.write(bytes, std::span<const rtrs::ConstSegment>{}).service();
}

rdma::Task<void> DiskCore::say_goodbye(rtrs::Session session, std::uint32_t device, Grant grant) {
    try {
        (void)co_await ask_to_close(std::move(session), device, grant);
    } catch (...) {
        // As in the destructor.
    }
}

rdma::Error DiskCore::refusal(int code) const {
    std::string why = "the server refused the disk " + name_ + ": ";
    switch (code) {
        case ENOENT:
            why += "it exports none of this name";
            break;
        case EPERM:
            why += "another client has it open for writing; open it for reading, or close it there";
            break;
        case EROFS:
            why += "it is exported for reading only; open it for reading";
            break;
        case EACCES:
            why += "it is not exported to this session name and address";
            break;
        case ESTALE:
            why +=
                "another client was granted it since, or its content was replaced; open it again";
            break;
        case ENOSPC:
        case EDQUOT:
            why +=
                "it has no room to keep the writer record, without which no client may write; make "
                "some there";
            break;
        default:
            why += std::strerror(code);
    }
    return {code, why};
}

rdma::Task<void> DiskCore::open_in_background(std::shared_ptr<DiskCore> self) {
    rdma::Result<> done;
    try {
        done = co_await self->introduce();
        if (done) done = co_await self->ask_to_open();
    } catch (...) {
        done = thrown_error();
    }
    self->unsure_ = !done;
    self->opened_how_ = std::move(done);
    self->opening_ = false;
    self->changed_.notify_all();
}

rdma::Task<void> DiskCore::close_in_background(std::shared_ptr<DiskCore> self) {
    // An OPEN that arrived after it would leave the disk open.
    while (self->opening_) (void)co_await self->changed_.wait();
    rdma::Result<> done;
    try {
        done = co_await ask_to_close(self->session_, self->device_, self->grant_);
    } catch (...) {
        done = thrown_error();
    }
    // A server that does not know the disk any more has it closed.
    if (done || done.error().code != ENOTCONN) self->closed_how_ = std::move(done);
    self->closing_ = false;
    self->changed_.notify_all();
}

rdma::Task<rdma::Result<>> DiskCore::introduce() {
    std::array<std::byte, SessionInfo::kSize> message, answer{};
    SessionInfo{}.emit(message, MessageType::SessionInfo);
    auto done = co_await session_.read(message, answer).service();
    if (!done) co_return done;
    const auto info = SessionInfo::parse(answer, MessageType::SessionInfoResponse);
    if (!info) co_return rdma::Error(EPROTO, "the server does not speak RNBD; ask another port");
    co_return rdma::Result<>{};
}

rdma::Task<rdma::Result<>> DiskCore::ask_to_open() {
    Message<OpenRequest> message;
    std::array<std::byte, OpenResponse::kSize + Grant::kSize> answer{};
    const bool extended = session_.extended();
    const auto bytes = message.fill(OpenRequest{access_, name_}, grant_, extended);
    const auto room = std::span(answer).first(extended ? answer.size() : OpenResponse::kSize);
    auto done = co_await session_.read(bytes, room).service();
    if (!done) {
        const rdma::Error why = refusal(done.error().code);
        // It stays so: the session that was granted it since may write until it is opened again.
        if (why.code == ESTALE && life_ > 0) gone_ = why.why;
        co_return why;
    }
    const auto response = OpenResponse::parse(answer);
    if (!response) co_return rdma::Error(response.error());
    co_return learn(*response, Grant::parse_behind(answer, OpenResponse::kSize));
}

rdma::Result<> DiskCore::learn(const OpenResponse& response, const Grant& grant) {
    const std::uint64_t before = info_.shape.cache_identity;
    const bool changed = life_ > 0 && before != 0 && before != response.cache_identity;
    if (changed && !response.volatile_cache)
        gone_ =
            "the content of the disk " + name_ + " was lost when its server ended; open it again";
    if (changed && written_ != flushed_)
        lost_ = "the server of the disk " + name_ +
                " lost what was written since the last flush when its machine ended; close the "
                "disk and open it again";
    grant_.store = grant.store;
    grant_.generation = grant.generation;
    ++life_;
    device_ = response.device;
    fua_ = response.fua;
    Shape& shape = info_.shape;
    shape.size = response.sectors * kSectorSize;
    shape.logical_block = response.logical_block;
    shape.physical_block = response.physical_block;
    shape.discard_granularity = response.discard_granularity;
    shape.zeroes = response.max_zeroes_sectors != 0;
    shape.volatile_cache = response.volatile_cache;
    shape.rotational = response.rotational;
    shape.cache_identity = response.cache_identity;
    const std::uint64_t block = shape.logical_block;
    info_.read_only = access_ == AccessMode::ReadOnly;
    info_.max_io = session_.max_io_size() / block * block;
    info_.max_discard = std::uint64_t{response.max_discard_sectors} * kSectorSize / block * block;
    info_.max_zeroes = std::uint64_t{response.max_zeroes_sectors} * kSectorSize / block * block;
    return {};
}

rdma::Task<rdma::Result<>> DiskCore::close() {
    if (!std::exchange(closed_, true)) {
        closing_ = true;
        try {
            loop_.spawn(close_in_background(shared_from_this()));
        } catch (...) {
            closed_ = closing_ = false;
            throw;
        }
    }
    while (closing_)
        if (auto waited = co_await changed_.wait(); !waited) co_return waited;
    co_return closed_how_;
}

rdma::Result<> DiskCore::check(std::uint64_t offset, std::uint64_t length) const {
    const Shape& shape = info_.shape;
    if (closed_) return rdma::Error(EBADF, "the disk " + name_ + " is closed");
    if (offset > shape.size || shape.size - offset < length)
        return rdma::Error(ENOSPC, "the disk " + name_ + " ends at byte " +
                                       std::to_string(shape.size) +
                                       "; if it has grown, ask for its size again");
    if (offset % shape.logical_block != 0 || length % shape.logical_block != 0)
        return rdma::Error(EINVAL, "the disk " + name_ + " is read and written in blocks of " +
                                       std::to_string(shape.logical_block) + " bytes");
    return {};
}

rdma::Task<rdma::Result<>> DiskCore::reopen(std::uint64_t life) {
    if (closed_) co_return rdma::Error(EBADF, "the disk " + name_ + " is closed");
    if (life != life_) co_return rdma::Result<>{};  // Somebody else did it.
    if (!std::exchange(opening_, true)) {
        try {
            loop_.spawn(open_in_background(shared_from_this()));
        } catch (...) {
            opening_ = false;
            throw;
        }
    }
    while (opening_)
        if (auto waited = co_await changed_.wait(); !waited) co_return waited;
    co_return life != life_ ? rdma::Result<>{} : opened_how_;
}

rdma::Result<DiskCore::Opening> DiskCore::current(const IoRequest& io) const {
    if (!gone_.empty()) return rdma::Error(ESTALE, gone_);
    if (!lost_.empty() && promises(io)) return rdma::Error(EIO, lost_);
    return Opening{life_, info_.shape.cache_identity};
}

bool DiskCore::settled(const IoRequest& io) const {
    return !opening_ && !(unsure_ && promises(io));
}

rdma::Task<rdma::Result<>> DiskCore::settle(const IoRequest& io, bool done) {
    while (opening_)
        if (auto waited = co_await changed_.wait(); !waited) co_return waited;
    // Of the life that is now: another request may have begun one since this one was sent.
    while (done && unsure_ && promises(io))
        if (auto opened = co_await reopen(life_); !opened) co_return opened;
    co_return rdma::Result<>{};
}

void DiskCore::count(const IoRequest& io, const rdma::Result<>& done,
                     std::uint64_t written_before) {
    if (done && is_write(io.kind) && !io.fua) ++written_;
    if (done && (io.preflush || io.kind == IoKind::Flush))
        flushed_ = std::max(flushed_, written_before);
    if (!done && io.kind == IoKind::Flush && is_loss(done.error().code))
        lost_ = "a flush of the disk " + name_ + " failed (" + done.error().why +
                "); close the disk and open it again";
}

rdma::Task<rdma::Result<>> DiskCore::request(IoRequest io, std::span<std::byte> data) {
    Message<IoRequest> message;
    const std::uint64_t before = written_;
    const rtrs::Segment into = data;
    const rtrs::ConstSegment from = data;
    const std::size_t parts = data.empty() ? 0 : 1;
    for (int i = 0; i < kMaxReopens; ++i) {
        if (closed_) co_return rdma::Error(EBADF, "the disk " + name_ + " is closed");
        const auto sent = current(io);
        if (!sent) co_return sent.error();
        io.device = device_;
        const auto bytes = message.fill(io, grant_, session_.extended());
        rdma::Result<> done;
        // The kernel's client sends a flush as a read of nothing.
        if (io.kind == IoKind::Read || io.kind == IoKind::Flush)
            done = co_await session_.read(bytes, std::span(&into, parts));
        else
            done = co_await session_.write(bytes, std::span(&from, parts));
        // An answer may overtake that to a reopening, and only that tells what was lost.
        if (!settled(io))
            if (auto opened = co_await settle(io, bool(done)); !opened) co_return opened;
        const auto now = current(io);
        if (done && !now) co_return now.error();
        // The answer may be one of the server that has lost its cache since: nothing says which of
        // the two has the data.
        if (done && is_write(io.kind) && !io.fua && sent->cache != now->cache) continue;
        count(io, done, before);
        if (done || done.error().code != ENOTCONN) co_return done;
        if (auto opened = co_await reopen(sent->life); !opened) co_return opened;
    }
    co_return rdma::Error(EIO, "the server forgets the disk " + name_ + " again and again");
}

rdma::Task<void> DiskCore::transfer_piece(IoRequest io, std::span<std::byte> data, Pieces& pieces) {
    try {
        auto done = co_await request(io, data);
        if (!done) pieces.result = done;
    } catch (...) {
        // It must not count as written.
        pieces.result = thrown_error();
    }
}

rdma::Task<rdma::Result<>> DiskCore::transfer(IoRequest io, std::uint64_t offset,
                                              std::span<std::byte> data) {
    if (auto fine = check(offset, data.size()); !fine) co_return fine;
    io.sector = offset / kSectorSize;
    io.size = static_cast<std::uint32_t>(std::min<std::uint64_t>(data.size(), info_.max_io));
    if (data.size() <= info_.max_io) {
        if (data.empty()) co_return rdma::Result<>{};
        co_return co_await request(io, data);
    }
    Pieces pieces;
    rdma::TaskGroup group(loop_);
    for (std::uint64_t at = 0; at < data.size(); at += info_.max_io) {
        const auto part = data.subspan(at, std::min<std::uint64_t>(data.size() - at, info_.max_io));
        io.sector = (offset + at) / kSectorSize;
        io.size = static_cast<std::uint32_t>(part.size());
        group.spawn(transfer_piece(io, part, pieces));
    }
    if (auto joined = co_await group.join(); !joined) co_return joined;
    co_return pieces.result;
}

rdma::Task<rdma::Result<>> DiskCore::read(std::uint64_t offset, std::span<std::byte> into) {
    IoRequest io;
    io.kind = IoKind::Read;
    io.sync = true;
    return transfer(io, offset, into);
}

rdma::Task<rdma::Result<>> DiskCore::write(std::uint64_t offset, std::span<const std::byte> from,
                                           WriteOptions options) {
    if (!info_.shape.volatile_cache) options = {};
    // Kernels before 7.0 do not know PREFLUSH, and pieces would each have it.
    const bool alone = session_.extended() && from.size() <= info_.max_io;
    if ((options.preflush && !alone) || (options.fua && !fua_))
        return write_with_flushes(offset, from, options);
    IoRequest io;
    io.kind = IoKind::Write;
    io.preflush = options.preflush;
    io.fua = io.sync = options.fua;
    // Requests of both directions are described alike; this one is only read.
    return transfer(io, offset, {const_cast<std::byte*>(from.data()), from.size()});
}

rdma::Task<rdma::Result<>> DiskCore::write_with_flushes(std::uint64_t offset,
                                                        std::span<const std::byte> from,
                                                        WriteOptions options) {
    if (options.preflush)
        if (auto flushed = co_await flush(); !flushed) co_return flushed;
    const bool flushes = options.fua && !fua_;
    auto done = co_await write(offset, from, {.fua = options.fua && fua_});
    if (done && flushes) co_return co_await flush();
    co_return done;
}

rdma::Task<rdma::Result<>> DiskCore::flush() {
    if (!info_.shape.volatile_cache && gone_.empty() && lost_.empty()) co_return check(0, 0);
    IoRequest io;
    io.kind = IoKind::Flush;
    io.sync = io.fua = true;  // As the kernel's client sends it.
    io.preflush = true;
    co_return co_await request(io, {});
}

rdma::Task<rdma::Result<>> DiskCore::clear(IoRequest what, std::uint64_t offset,
                                           std::uint64_t length, std::uint64_t piece) {
    if (auto fine = check(offset, length); !fine) co_return fine;
    if (piece == 0)
        co_return rdma::Error(EOPNOTSUPP, "the server's disk " + name_ + " does not offer this");
    const bool fua = what.fua && info_.shape.volatile_cache;
    what.fua = fua && fua_;
    for (std::uint64_t at = 0; at < length; at += piece) {
        what.sector = (offset + at) / kSectorSize;
        what.size = static_cast<std::uint32_t>(std::min(length - at, piece));
        if (auto done = co_await request(what, {}); !done) co_return done;
    }
    if (fua && !fua_) co_return co_await flush();
    co_return rdma::Result<>{};
}

}  // namespace feroce::block
