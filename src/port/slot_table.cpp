#include "port/slot_table.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "port/memory_file.hpp"

namespace feroce::port {
namespace {

// What autobind gives: a zero byte and this many characters.
constexpr std::size_t kNameLength = 5;

constexpr std::uint32_t kGrowthByte = kSlots;  // Behind those of the slots.

struct flock byte_lock(std::uint32_t slot, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot;
    lock.l_len = 1;
    return lock;
}

}  // namespace

// A file that may not grow so large has no estates: then peers of the dead find out by themselves.
off_t SlotTable::file_size() {
    constexpr off_t kWhole = kRecordBytes + off_t{kSlots} * kBondsPerSlot * kBondBytes;
    return may_make_file(kWhole) ? kWhole : static_cast<off_t>(kRecordBytes);
}

SlotTable::~SlotTable() {
    if (records_ != nullptr) ::munmap(records_, kMapped);
}

bool SlotTable::map() {
    void* pages = ::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (pages == MAP_FAILED) return false;
    records_ = static_cast<Record*>(pages);  // A new file is all zero, which is an empty table.
    doors_ = reinterpret_cast<Door*>(static_cast<std::byte*>(pages) + kDoors);
    head_ = reinterpret_cast<Head*>(static_cast<std::byte*>(pages) + kHead);
    return true;
}

bool SlotTable::create() {
    fd_ = Fd(::memfd_create("feroce-slots", MFD_CLOEXEC));
    return fd_.valid() && ::ftruncate(fd_.get(), file_size()) == 0 && map();
}

bool SlotTable::adopt(Fd fd) {
    fd_ = std::move(fd);
    return map();
}

bool SlotTable::try_lock_growth() {
    struct flock lock = byte_lock(kGrowthByte, F_WRLCK);
    return ::fcntl(fd_.get(), F_SETLK, &lock) == 0;
}

void SlotTable::unlock_growth() {
    struct flock lock = byte_lock(kGrowthByte, F_UNLCK);
    ::fcntl(fd_.get(), F_SETLK, &lock);
}

bool SlotTable::try_lock(std::uint32_t slot) {
    struct flock lock = byte_lock(slot, F_WRLCK);
    if (::fcntl(fd_.get(), F_SETLK, &lock) != 0) return false;
    locked_.add(slot);
    records_[slot].parcel_name.store(0, kRelaxed);  // A dead owner's: anybody may have it by now.
    records_[slot].process.store(::getpid(), kRelaxed);
    records_[slot].incarnation.store(0, kRelaxed);
    return true;
}

void SlotTable::unlock(std::uint32_t slot) {
    records_[slot].parcel_name.store(0, kRelaxed);
    records_[slot].incarnation.store(0, std::memory_order_release);
    locked_.remove(SlotSet::of(slot));
    struct flock lock = byte_lock(slot, F_UNLCK);
    ::fcntl(fd_.get(), F_SETLK, &lock);
}

bool SlotTable::locked_by_another(std::uint32_t slot) const {
    struct flock lock = byte_lock(slot, F_WRLCK);
    return ::fcntl(fd_.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool SlotTable::has_living_owner(std::uint32_t slot) const {
    return locked_.has(slot) || locked_by_another(slot);
}

std::uint32_t SlotTable::members() const {
    std::uint32_t count = 0;
    for (std::uint32_t slot = 1; slot < slots(); ++slot)
        // A dead owner leaves its incarnation behind; 0: the owner has left, or is not there yet.
        if (is_member_slot(slot) && incarnation(slot) != 0 && has_living_owner(slot)) ++count;
    return count;
}

bool SlotTable::has_owner(pid_t process) const {
    if (process <= 0) return false;
    for (std::uint32_t slot = 1; slot < kSlots; ++slot) {
        if (records_[slot].process.load(kRelaxed) != process) continue;
        // The record may be that of a dead owner; the lock is the truth.
        struct flock lock = byte_lock(slot, F_WRLCK);
        if (::fcntl(fd_.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
            lock.l_pid == process)
            return true;
    }
    return false;
}

// The number last: with it come the rest.
void SlotTable::set_owner(std::uint32_t slot, std::uint64_t incarnation, bool rings) {
    doors_[slot].pending.store({}, kRelaxed);
    doors_[slot].armed.store(0, kRelaxed);
    records_[slot].rings.store(rings ? kRingFormat : 0, kRelaxed);
    records_[slot].incarnation.store(incarnation, std::memory_order_release);
}

void SlotTable::set_parcel_name(std::uint32_t slot, const sockaddr_un& name) {
    std::uint64_t packed = 0;
    std::memcpy(&packed, name.sun_path + 1, kNameLength);
    records_[slot].parcel_name.store(packed, kRelaxed);
}

bool SlotTable::parcel_name(std::uint32_t slot, sockaddr_un& out) const {
    const std::uint64_t packed = records_[slot].parcel_name.load(kRelaxed);
    out = {};
    out.sun_family = AF_UNIX;
    std::memcpy(out.sun_path + 1, &packed, kNameLength);
    return packed != 0 && has_living_owner(slot);
}

SlotTable::Seat SlotTable::seat(std::uint32_t slot) const {
    const Record& r = records_[slot];
    return {static_cast<Guest>(r.guest.load(kRelaxed)), r.user.load(kRelaxed),
            r.since_ns.load(kRelaxed), r.token.load(kRelaxed), r.former_token.load(kRelaxed)};
}

void SlotTable::set_seat(std::uint32_t slot, const Seat& seat) {
    Record& r = records_[slot];
    r.user.store(seat.user, kRelaxed);
    r.since_ns.store(seat.since_ns, kRelaxed);
    // This one first: its writer may die or be stopped before the next.
    r.former_token.store(seat.former_token, kRelaxed);
    r.token.store(seat.token, std::memory_order_release);
    r.guest.store(static_cast<std::uint32_t>(seat.guest), kRelaxed);
}

std::vector<SlotTable::Seat> SlotTable::guests() const {
    std::vector<Seat> out;
    for (std::uint32_t slot = 1; slot < kSlots; ++slot)
        if (const Seat s = seat(slot); is_guest_slot(slot) && s.guest == Guest::Seated)
            out.push_back(s);
    return out;
}

}  // namespace feroce::port
