#include "port/ring_sender.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "port/socket_calls.hpp"

namespace feroce::port {
namespace {

using transport::Path;
using transport::TransmitRun;

// A member that does not accept is asked again after so many runs, and then ever less often.
constexpr std::uint32_t kPatienceMin = 256;
constexpr std::uint32_t kPatienceMax = 65536;
// How many runs must find room after one that did not.
constexpr std::uint32_t kOverflowRuns = 1024;
// Of a small one, which may not grow: until then it is not used.
constexpr std::uint32_t kSmallOverflowRuns = 65536;
// Bytes that are built in rings before their readers see them. To show them costs both sides a
// shared line; to wait for them, the time in which they could be read.
constexpr std::uint32_t kUnshownMax = 256 * 1024;

RingPath ring_path(const Path& path) {
    return {path.source, path.destination, path.traffic_class};
}

// An eventfd that does not block: we write to it under a lock. Whatever else has no inode of its
// own refuses eight bytes.
bool is_bell(int fd) {
    struct stat about {};
    const int flags = ::fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_NONBLOCK) != 0 && ::fstat(fd, &about) == 0 &&
           (about.st_mode & S_IFMT) == 0;
}

}  // namespace

RingSender::~RingSender() {
    for (Link& link : links_) give_memory(link);
}

bool RingSender::take_memory(Link& link, std::size_t bytes) {
    if (!parts_.budget.take(bytes)) return false;
    link.memory += bytes;
    memory_ += bytes;
    return true;
}

void RingSender::give_memory(Link& link) {
    parts_.budget.give(link.memory);
    memory_ -= link.memory;
    link.memory = 0;
}

bool RingSender::grow(Link& link) {
    if (!link.writer->is_small() || !take_memory(link, kRingSize - link.memory)) return false;
    link.writer->grow();
    return true;
}

bool RingSender::stays_here(Link& link, const Path& path) const {
    const std::uint32_t version = parts_.addresses.version();
    if (link.version == version && link.path == path) return link.stays_here;
    link.path = path;
    link.path_number.reset();
    link.version = version;
    return link.stays_here = parts_.addresses.connect(path.source, path.destination);
}

RingSender::Link* RingSender::open_link(const Path& path, SlotNumber slot) {
    if (!parts_.enabled || !is_member_slot(slot)) return nullptr;
    Link& link = links_[slot];
    if (!stays_here(link, path)) return nullptr;
    if (link.stage == Stage::Accepted && parts_.table.incarnation(slot) == link.reader)
        return &link;
    offer(slot);
    return nullptr;
}

std::uint32_t RingSender::send(const TransmitRun& run) {
    open_ = 0;
    Link* const link = open_link(run.path, run.destination_slot);
    if (link == nullptr) return 0;
    const auto path = link->writer->path(ring_path(run.path));
    if (!path || !takes_all(*link, run)) return 0;
    const std::uint32_t put_there = put(*link, *path, run);
    sent_ += put_there;
    if (put_there < run.packet_count || link->overflow != 0) [[unlikely]]
        note_overflow(*link, run.packet_count - put_there);
    touched_.add(run.destination_slot);
    return put_there;
}

// A small ring that may not grow takes a run or nothing, and then nothing for a while: UDP keeps
// the order that would be lost between the two.
bool RingSender::takes_all(Link& link, const TransmitRun& run) {
    if (!link.writer->is_small()) return true;
    const auto size =
        static_cast<std::uint32_t>(std::min<std::size_t>(run.segment_size, run.bytes.size()));
    const bool fits =
        link.overflow == 0 && (link.writer->has_room(size, run.packet_count) || grow(link));
    if (!fits) note_overflow(link, link.overflow == 0 ? run.packet_count : 0);
    return fits;
}

bool RingSender::has_room(const Path& path, SlotNumber slot, std::uint32_t size) {
    if (open_ != 0 && open_ == slot && links_[slot].path == path &&
        links_[slot].writer->has_room(size))
        return true;
    open_ = 0;
    Link* const link = open_link(path, slot);
    if (link == nullptr || link->overflow != 0) return false;
    const auto number = link->writer->path(ring_path(path));
    // Kept for place(): the reader may have changed the ring until then.
    placed_path_ = number.value_or(0);
    const bool room =
        number && (link->writer->has_room(size) || (grow(*link) && link->writer->has_room(size)));
    if (room) open_ = slot;
    return room;
}

ByteSpan RingSender::place(SlotNumber slot, std::uint32_t size, std::uint32_t packets) {
    if (unshown_ + size > kUnshownMax) publish();
    unshown_ += size;
    RingWriter& writer = *links_[slot].writer;
    touched_.add(slot);
    placed_ = slot;
    ++sent_;
    return writer.place(placed_path_, size, packets);
}

void RingSender::take_back() {
    links_[placed_].writer->take_back();
    --sent_;
}

std::optional<transport::RunSink::Unread> RingSender::unread(SlotNumber slot) {
    if (!is_member_slot(slot)) return std::nullopt;
    Link& link = links_[slot];
    if (link.stage != Stage::Accepted || link.overflow != 0 || link.writer->is_small())
        return std::nullopt;
    return link.writer->unread();
}

std::uint32_t RingSender::put(Link& link, std::uint32_t path, const TransmitRun& run) {
    std::uint32_t count = 0;
    for (ByteSpan rest = run.bytes; !rest.empty(); ++count) {
        const std::size_t size = std::min<std::size_t>(run.segment_size, rest.size());
        ByteSpan room = link.writer->place(path, static_cast<std::uint32_t>(size));
        if (room.empty() && grow(link))
            room = link.writer->place(path, static_cast<std::uint32_t>(size));
        if (room.empty()) break;
        std::memcpy(room.data(), rest.data(), size);
        rest = rest.subspan(size);
    }
    return count;
}

// Too much was sent for a window of fixed size: it must learn from losses for a while.
void RingSender::note_overflow(Link& link, std::uint32_t packets) {
    overflowed_ += packets;
    const std::uint32_t before = link.overflow;
    const std::uint32_t runs = link.writer->is_small() ? kSmallOverflowRuns : kOverflowRuns;
    link.overflow = packets != 0 ? runs : before - 1;
    if ((before == 0) != (link.overflow == 0)) ++changes_;
}

void RingSender::offer(SlotNumber slot) {
    Link& link = links_[slot];
    const std::uint64_t reader = parts_.table.incarnation(slot);
    if (link.reader != reader) {
        drop(slot);
        link.reader = reader;
        link.patience = 0;
        link.patience_next = kPatienceMin;
    }
    if (link.patience > 0) {
        --link.patience;
        return;
    }
    drop(slot);
    link.patience = link.patience_next;
    link.patience_next = std::min(2 * link.patience_next, kPatienceMax);
    if (reader == 0 || !parts_.table.takes_rings(slot)) return;
    if (!take_memory(link, ring_takes_all_pages() ? kRingSize : kSmallRingSize)) {
        ++refused_;
        return;
    }
    const Fd memory = link.file.make();
    if (!memory.valid()) return drop(slot);
    link.ring = parts_.random.next();
    const RingMessage message{.kind = RingMessage::Kind::Offer,
                              .from = slot_,
                              .incarnation = parts_.table.incarnation(slot_),
                              .ring = link.ring};
    if (!send_ring_message(parts_.socket, parts_.table, slot, message, memory.get()))
        return drop(slot);
    link.writer.emplace(link.file.memory());
    link.stage = Stage::Offered;
}

void RingSender::accepted(const RingMessage& message, Fd bell) {
    Link& link = links_[message.from];
    if (link.stage != Stage::Offered || link.ring != message.ring ||
        link.reader != message.incarnation || !is_bell(bell.get()))
        return;
    link.bell = std::move(bell);
    link.stage = Stage::Accepted;
    ++changes_;
}

void RingSender::drop(std::uint32_t slot) {
    Link& link = links_[slot];
    if (link.stage == Stage::Accepted) ++changes_;
    touched_.remove(slot);  // The last batch may have begun to fill it.
    if (open_ == slot) open_ = 0;
    SlotNumber* const heirs = heirs_.data();
    heir_count_ = std::remove(heirs, heirs + heir_count_, slot) - heirs;
    link.stage = Stage::None;
    link.overflow = 0;
    link.writer.reset();
    link.path_number.reset();
    link.file.unmap();
    link.bell.reset();
    give_memory(link);
}

void RingSender::forget_departed() {
    for (std::uint32_t slot = 1; slot < links_.size(); ++slot)
        if (links_[slot].stage != Stage::None &&
            (parts_.table.incarnation(slot) != links_[slot].reader ||
             !parts_.table.has_living_owner(slot)))
            drop(slot);
}

// Though a ring that was full is passed by for a while: its reader takes what was left behind when
// it has taken all that was sent by UDP.
bool RingSender::inherits(const Path& path, SlotNumber slot) {
    if (!is_member_slot(slot)) return false;
    Link& link = links_[slot];
    if (open_ == slot) open_ = 0;  // Of another path, maybe.
    return link.stage == Stage::Accepted && parts_.table.incarnation(slot) == link.reader &&
           stays_here(link, path);
}

bool RingSender::leave_behind(const Path& path, SlotNumber slot, transport::AckView ack) {
    if (!inherits(path, slot)) return true;
    Link& link = links_[slot];
    if (!link.path_number) link.path_number = link.writer->path(ring_path(path));
    if (!link.path_number) return true;
    if (!link.writer->leaves_behind()) {
        if (heir_count_ == heirs_.size()) return false;
        heirs_[heir_count_++] = slot;
    }
    return link.writer->leave_behind(*link.path_number, ack);
}

void RingSender::take_legacies_back() {
    while (heir_count_ > 0) links_[heirs_[--heir_count_]].writer->take_legacies_back();
}

void RingSender::publish() {
    unshown_ = 0;
    open_ = 0;
    if (touched_.empty()) return;
    const SlotSet touched = std::exchange(touched_, {});
    touched.for_each([this](std::uint32_t slot) { links_[slot].writer->publish(); });
    touched.for_each([this](std::uint32_t slot) { call(slot); });
}

// The reader clears our bit and then looks into the ring; we have put something there and now look
// at the bit. It arms itself and then looks at the bits; we set ours and then look whether it is
// armed. Sequential consistency of these accesses, and of the last stamp, means that one of us sees
// the other (models/ring_wakeup.pml).
void RingSender::call(std::uint32_t slot) {
    SlotTable::Door& door = parts_.table.door(slot);
    if (door.pending.has(slot_)) return;
    door.pending.add(slot_);
    // The door stays armed: one that is stopped before it rings keeps nobody else from ringing.
    if (door.armed.load() == SlotTable::tag_of(links_[slot].reader)) ring(links_[slot].bell.get());
}

bool RingSender::reaches(const Path& path, SlotNumber slot) const {
    if (!is_member_slot(slot)) return false;
    const Link& link = links_[slot];
    return link.stage == Stage::Accepted && link.overflow == 0 &&
           link.writer->has_room_for(ring_path(path)) &&
           parts_.addresses.connect(path.source, path.destination);
}

}  // namespace feroce::port
