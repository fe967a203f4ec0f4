// See desk.hpp.
#include "block/desk.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.hpp"

namespace feroce::block {

namespace {

constexpr std::uint32_t kMaxSpan =
    UINT32_MAX / kSectorSize / 8 * 8;        // Sectors, in 32 bits of bytes.
constexpr std::uint16_t kMaxSegments = 128;  // The kernel's own limit.

// What the request is about must lie on the disk and on the disk's blocks.
Result<void> check_range(const IoRequest& io, const Shape& shape) {
    if (io.kind == IoKind::Flush) return {};
    if (io.size == 0) return Error{EINVAL, "a request for nothing"};
    if (io.sector > shape.size / kSectorSize)
        return Error{ENOSPC, "a request lies behind the disk's end"};
    const std::uint64_t offset = io.sector * kSectorSize;
    if (shape.size - offset < io.size) return Error{ENOSPC, "a request goes over the disk's end"};
    if (offset % shape.logical_block != 0 || io.size % shape.logical_block != 0)
        return Error{EINVAL, "a request is not made of whole blocks"};
    return {};
}

Result<void> check_data(const IoRequest& io, const rtrs::ServerRequest& request) {
    const std::size_t carried = request.data().size();
    const bool reads = request.direction() == rtrs::Direction::Read;
    switch (io.kind) {
        case IoKind::Read:
            if (!reads || carried != io.size) break;
            return {};
        case IoKind::Write:
            if (reads || carried != io.size) break;
            return {};
        case IoKind::Flush:
        case IoKind::Discard:
        case IoKind::WriteZeroes:
            if (carried != 0) break;
            return {};
        case IoKind::SecureErase:
            return Error{EOPNOTSUPP, "secure erase is not offered"};
    }
    return Error{EINVAL, "a request's data is not what it says"};
}

// Its success says that something is durable.
bool promises(IoKind kind, bool fua, bool preflush) {
    return kind == IoKind::Flush || fua || preflush;
}

bool changes(IoKind kind) {
    return kind != IoKind::Read && kind != IoKind::Flush;
}

template <std::size_t size>
Result<std::span<std::byte, size>> room_for_answer(rtrs::ServerRequest& request) {
    if (request.direction() != rtrs::Direction::Read || request.data().size() < size)
        return Error{EINVAL, "a question leaves no room for its answer"};
    // The client must not read what the chunk held before.
    std::fill(request.data().begin(), request.data().end(), std::byte{0});
    return request.data().first<size>();
}

}  // namespace

std::uint32_t device_number(const std::string& name) {
    std::uint32_t hash = 0x811c9dc5;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
    return hash;
}

Desk::~Desk() {
    ASSERT(in_flight() == 0);
}

std::size_t Desk::in_flight() const {
    const bool saves = book_saver_ != nullptr && book_saver_->saving();
    return statistics_.in_flight + keeper_.keeping + (saves ? 1 : 0);
}

DiskServerStatistics Desk::statistics() const {
    DiskServerStatistics out = statistics_;
    for (const auto& [id, session] : sessions_) out.open += session.devices.size();
    return out;
}

int Desk::admit(const rtrs::Visitor& visitor) {
    const auto [place, begins] = sessions_.try_emplace(visitor.session);
    Session& session = place->second;
    if (begins) {
        session.client = visitor.uuid;
        book_.came(visitor.uuid, visitor.returns);
    }
    for (const auto& [key, device] : session.devices)
        if (!device->disk->guests().admits_address(visitor.peer)) return EACCES;
    session.name = visitor.name;
    session.addresses.insert(visitor.peer);
    return 0;
}

void Desk::end_session(std::uint64_t session) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    book_.left(found->second.client);
    sessions_.erase(found);
}

Desk::Session& Desk::session_of(const rtrs::ServerRequest& request) {
    return sessions_[request.session()];
}

void Desk::handle(rtrs::ServerRequest& request) {
    // The client may write while we read, so the message is read once, from a copy.
    std::array<std::byte, kMaxMessageSize> copy;
    const std::size_t size = std::min(request.message().size(), copy.size());
    std::copy_n(request.message().begin(), size, copy.begin());
    const auto fine = answer(request, ByteView(copy).first(size));
    if (fine) return;
    ++statistics_.refused;
    statistics_.last_refusal = fine.error().why;
    request.respond(fine.error().code);
}

Result<void> Desk::answer(rtrs::ServerRequest& request, ByteView message) {
    const auto type = message_type(message);
    if (!type) return type.error();
    switch (*type) {
        case MessageType::SessionInfo:
            return introduce(request, message);
        case MessageType::Open:
            return open(request, message);
        case MessageType::Io:
            return start(request, message);
        case MessageType::Close:
            return close(request, message);
        case MessageType::SessionInfoResponse:
        case MessageType::OpenResponse:
            break;
    }
    return Error{EINVAL, "a message of a kind that clients do not send"};
}

Result<void> Desk::introduce(rtrs::ServerRequest& request, ByteView message) {
    const auto info = SessionInfo::parse(message, MessageType::SessionInfo);
    if (!info) return info.error();
    const auto room = room_for_answer<SessionInfo::kSize>(request);
    if (!room) return room.error();
    SessionInfo{std::min(info->version, kVersion)}.emit(*room, MessageType::SessionInfoResponse);
    request.respond();
    return {};
}

struct Desk::Opening final : ExportedDisk::Waiter {
    Opening(Desk& at, rtrs::ServerRequest& of, Key as, std::shared_ptr<Opened> what, bool is_fresh)
        : desk(at), request(of), key(as), opened(std::move(what)), fresh(is_fresh) {}
    void on_kept(int error) override {
        if (error == 0 && desk.note(*this)) return;
        const std::unique_ptr<Opening> self(this);
        desk.granted(*this, error);
    }

    Desk& desk;
    rtrs::ServerRequest& request;
    Key key;
    std::shared_ptr<Opened> opened;
    bool fresh;  // Else its session has this disk open already.
    bool noted = false;
};

Result<void> Desk::open(rtrs::ServerRequest& request, ByteView message) {
    const auto asked = OpenRequest::parse(message);
    if (!asked) return asked.error();
    const auto room = room_for_answer<OpenResponse::kSize>(request);
    if (!room) return room.error();
    const Grant held = Grant::parse_behind(message, OpenRequest::kSize);
    const auto opened = grant(request.session(), *asked, held);
    if (!opened) return opened.error();
    const Key key{device_number((*opened)->disk->what().name), held.handle};
    auto& devices = session_of(request).devices;
    const bool fresh = devices.emplace(key, *opened).second;
    try {
        auto opening = std::make_unique<Opening>(*this, request, key, *opened, fresh);
        // What is granted is durable before the client hears of it.
        (*opened)->disk->settle(*opening.release());
    } catch (...) {
        if (fresh) devices.erase(key);
        throw;
    }
    return {};
}

// After the disk's record: a server that is killed in between has granted nothing that the client
// knows of, and if the client asks again the record has it as the writer.
bool Desk::note(Opening& opening) {
    const auto session = sessions_.find(opening.request.session());
    if (opening.noted || opening.key.handle != 0 || session == sessions_.end()) return false;
    opening.noted = true;
    const ClientId& client = session->second.client;
    const Opened& opened = *opening.opened;
    try {
        book_.opened(client);
        if (opened.hold != nullptr)
            book_.granted(client, {opened.asked, opening.key.device, opened.disk->record().store,
                                   opened.hold->generation});
    } catch (...) {
        keeper_.tell_exception();
        opening.on_kept(EIO);
        return true;
    }
    if (book_saver_ == nullptr) return false;
    book_saver_->settle(opening);
    return true;
}

// What the session had before it goes on to have.
void Desk::forget(const Opening& opening) {
    const auto session = sessions_.find(opening.request.session());
    if (!opening.fresh || session == sessions_.end()) return;
    session->second.devices.erase(opening.key);
    if (opening.noted) book_.closed(session->second.client, opening.key.device);
}

void Desk::granted(const Opening& opening, int error) {
    rtrs::ServerRequest& request = opening.request;
    const Opened& opened = *opening.opened;
    if (error != 0) {
        forget(opening);
        statistics_.last_refusal =
            std::string("the disk cannot be described, or its writer record not kept: ") +
            std::strerror(error);
        ++statistics_.refused;
        return request.respond(error);
    }
    const std::span<std::byte> room = request.data();
    try {
        describe(*opened.disk).emit(room.first<OpenResponse::kSize>());
    } catch (...) {
        keeper_.tell_exception();
        return granted(opening, EIO);
    }
    const std::uint64_t generation = opened.hold != nullptr ? opened.hold->generation : 0;
    if (room.size() >= OpenResponse::kSize + Grant::kSize)
        Grant{opening.key.handle, opened.disk->record().store, generation}.emit(
            room.subspan<OpenResponse::kSize, Grant::kSize>());
    request.respond();
}

std::shared_ptr<ExportedDisk> Desk::find(const Session& session, const std::string& name) const {
    for (const std::string& full : {session.name + "/" + name, name}) {
        const auto found = disks_.find(device_number(full));
        if (found != disks_.end() && found->second->what().name == full) return found->second;
    }
    return nullptr;
}

Result<Grant> Desk::held_by(const Session& session, const std::string& asked,
                            const ExportedDisk& disk) const {
    const WriterRecord& record = disk.record();
    const std::uint32_t number = device_number(asked);
    const auto past =
        book_.past(session.client, asked, {number, device_number(session.name + "/" + asked)});
    if (past.unknown && disk.recorded()) {
        const WriterRecord::Holder holder{session.client, number};
        const auto& all = record.holders;
        if (std::find(all.begin(), all.end(), holder) == all.end())
            return Error{ESTALE,
                         "a client that comes back, and that this disk's record does not have as "
                         "its last writer by this name; it must unmap its disks"};
        return Grant{0, record.store, record.generation};
    }
    if (!past.open) return Grant{};
    // A store that has no number is known by its export's name.
    const bool same = past.open->store == record.store &&
                      (record.store != 0 || past.open->device == device_number(disk.what().name));
    if (!same) return Error{ESTALE, "the name means another disk than the client has written"};
    return Grant{0, past.open->store, past.open->generation};
}

Result<std::shared_ptr<ExportedDisk::Hold>> Desk::claim(std::uint64_t id, const OpenRequest& asked,
                                                        const Grant& held, ExportedDisk& disk) {
    const Session& session = sessions_[id];
    if (held.handle != 0) return disk.claim({id, session.name, {}, asked.access, held});
    const auto known = held_by(session, asked.name, disk);
    if (!known) return known.error();
    const WriterRecord::Holder holder{session.client, device_number(asked.name)};
    return disk.claim({id, session.name, holder, asked.access, *known});
}

Result<std::shared_ptr<Desk::Opened>> Desk::grant(std::uint64_t id, const OpenRequest& asked,
                                                  const Grant& held) {
    Session& session = sessions_[id];
    const std::shared_ptr<ExportedDisk> disk = find(session, asked.name);
    if (disk == nullptr) return Error{ENOENT, "no disk of this name is exported"};
    if (!admits(*disk, session)) return Error{EACCES, "the disk is not exported to this client"};
    const auto old = session.devices.find({device_number(disk->what().name), held.handle});
    // Asked again: for its size, or after a reconnect.
    if (old != session.devices.end()) return old->second;
    if (asked.access == AccessMode::ReadOnly) {
        TRY(disk->check_store(held));
        return std::make_shared<Opened>(Opened{disk, nullptr, asked.name});
    }
    auto hold = claim(id, asked, held, *disk);
    if (!hold) return hold.error();
    return std::make_shared<Opened>(Opened{disk, *std::move(hold), asked.name});
}

OpenResponse Desk::describe(ExportedDisk& disk) const {
    const Shape& shape = disk.look();
    OpenResponse response;
    response.device = device_number(disk.what().name);
    response.sectors = shape.size / kSectorSize;
    response.max_io_sectors = max_io_ / kSectorSize;
    response.max_zeroes_sectors = shape.zeroes ? kMaxSpan : 0;
    response.discard_granularity = shape.discard_granularity;
    response.max_discard_sectors = shape.discard_granularity != 0 ? kMaxSpan : 0;
    response.physical_block = static_cast<std::uint16_t>(std::min(shape.physical_block, 32768u));
    response.logical_block = static_cast<std::uint16_t>(shape.logical_block);
    response.max_segments = kMaxSegments;
    response.rotational = shape.rotational;
    response.fua = shape.volatile_cache;
    response.volatile_cache = shape.volatile_cache;
    response.cache_identity = shape.cache_identity;
    return response;
}

Result<void> Desk::close(rtrs::ServerRequest& request, ByteView message) {
    const auto asked = CloseRequest::parse(message);
    if (!asked) return asked.error();
    const Key key{asked->device, Grant::parse_behind(message, CloseRequest::kSize).handle};
    Session& session = session_of(request);
    const auto disk = disks_.find(key.device);
    if (disk != disks_.end() && key.handle == 0) disk->second->closed_by(session.client);
    if (key.handle == 0) book_.closed(session.client, key.device);
    if (book_saver_ != nullptr) book_saver_->settle();
    if (session.devices.erase(key) == 0)
        return Error{ENOTCONN, "this session has no such disk open"};
    request.respond();
    return {};
}

Result<void> Desk::start(rtrs::ServerRequest& request, ByteView message) {
    const auto io = IoRequest::parse(message);
    if (!io) return io.error();
    const Grant held = Grant::parse_behind(message, IoRequest::kSize);
    const auto& devices = session_of(request).devices;
    const auto found = devices.find({io->device, held.handle});
    if (found == devices.end()) return Error{ENOTCONN, "this session has no such disk open"};
    TRY(check_data(*io, request));
    ExportedDisk& disk = *found->second->disk;
    if (!check_range(*io, disk.shape())) TRY(check_range(*io, disk.look()));  // It may have grown.
    const auto& hold = found->second->hold;
    if (changes(io->kind) && hold == nullptr)
        return Error{EROFS, "the disk was opened for reading only"};
    if (hold != nullptr && held.generation != 0 && held.generation != hold->generation)
        return Error{ESTALE, "a request of a generation that is over"};
    if (disk.record().flush_failed && promises(io->kind, io->fua, io->preflush))
        return Error{EIO, "a flush has failed since the disk was opened"};
    submit(request, *io, found->second);
    return {};
}

void Desk::submit(rtrs::ServerRequest& request, const IoRequest& io,
                  std::shared_ptr<Opened> device) {
    count(io, *device->disk);
    Job& job = take_job();
    job.kind = io.kind;
    job.fua = io.fua;
    job.preflush = io.preflush;
    job.no_unmap = io.no_unmap;
    job.lost = false;
    job.offset = io.sector * kSectorSize;
    job.length = io.size;
    job.data = request.data();
    job.request = &request;
    job.device = std::move(device);
    ++statistics_.in_flight;
    try {
        job.device->disk->what().backend->submit(job);
    } catch (...) {
        keeper_.tell_exception();
        if (job.request == &request) job_done(job, EIO);
    }
}

void Desk::count(const IoRequest& io, ExportedDisk& disk) {
    switch (io.kind) {
        case IoKind::Read:
            ++statistics_.reads;
            disk.count_read(io.size);
            return;
        case IoKind::Write:
            ++statistics_.writes;
            disk.count_write(io.size);
            return;
        case IoKind::Flush:
            ++statistics_.flushes;
            return;
        case IoKind::Discard:
            ++statistics_.discards;
            return;
        case IoKind::WriteZeroes:
            ++statistics_.zeroes;
            return;
        case IoKind::SecureErase:
            return;
    }
}

Desk::Job& Desk::take_job() {
    if (BackendRequest* const old = free_.pop_front()) return static_cast<Job&>(*old);
    Job& job = jobs_.emplace_back();
    job.desk = this;
    job.done = [](BackendRequest& request, int error) {
        Job& self = static_cast<Job&>(request);
        self.desk->job_done(self, error);
    };
    return job;
}

void Desk::job_done(Job& job, int error) {
    const std::shared_ptr<Opened> device = std::move(job.device);
    ExportedDisk& disk = *device->disk;
    // One of several flushes side by side is told of a loss, and it concerns all of them.
    if (error == 0 && disk.record().flush_failed && promises(job.kind, job.fua, job.preflush))
        error = EIO;
    const bool lost = error != 0 && (job.kind == IoKind::Flush || job.lost);
    // The 9 bits of an answer carry any errno of Linux.
    if (error != 0) ++statistics_.failed;
    --statistics_.in_flight;
    rtrs::ServerRequest& request = *std::exchange(job.request, nullptr);
    if (!lost) {
        free_.push_back(job);
        return request.respond(error);
    }
    job.failed = &request;
    job.error = error;
    disk.flush_failed();
    disk.settle(job);
}

void Desk::Job::on_kept(int) {
    rtrs::ServerRequest& answered = *std::exchange(failed, nullptr);
    const int code = error;
    desk->free_.push_back(*this);
    answered.respond(code);
}

}  // namespace feroce::block
