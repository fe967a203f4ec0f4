#include "port/slot_table.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace feroce::port {
namespace {

// What autobind gives: a zero byte and this many characters.
constexpr std::size_t kNameLength = 5;
constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

struct flock byte_lock(std::uint32_t slot, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot;
    lock.l_len = 1;
    return lock;
}

}  // namespace

SlotTable::~SlotTable() {
    if (records_ != nullptr) ::munmap(records_, kSlots * sizeof(Record));
}

bool SlotTable::map() {
    void* pages =
        ::mmap(nullptr, kSlots * sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (pages == MAP_FAILED) return false;
    records_ = static_cast<Record*>(pages);  // A new file is all zero, which is an empty table.
    return true;
}

bool SlotTable::create() {
    fd_ = Fd(::memfd_create("feroce-slots", MFD_CLOEXEC));
    return fd_.valid() && ::ftruncate(fd_.get(), kSlots * sizeof(Record)) == 0 && map();
}

bool SlotTable::adopt(Fd fd) {
    fd_ = std::move(fd);
    return map();
}

bool SlotTable::try_lock(std::uint32_t slot) {
    struct flock lock = byte_lock(slot, F_WRLCK);
    return ::fcntl(fd_.get(), F_SETLK, &lock) == 0;
}

void SlotTable::unlock(std::uint32_t slot) {
    records_[slot].parcel_name.store(0, kRelaxed);
    struct flock lock = byte_lock(slot, F_UNLCK);
    ::fcntl(fd_.get(), F_SETLK, &lock);
}

bool SlotTable::locked_by_another(std::uint32_t slot) const {
    struct flock lock = byte_lock(slot, F_WRLCK);
    return ::fcntl(fd_.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
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
    return packed != 0;
}

SlotTable::Seat SlotTable::seat(std::uint32_t slot) const {
    const Record& r = records_[slot];
    return {static_cast<Guest>(r.guest.load(kRelaxed)), r.user.load(kRelaxed),
            r.since_ns.load(kRelaxed)};
}

void SlotTable::set_seat(std::uint32_t slot, const Seat& seat) {
    Record& r = records_[slot];
    r.user.store(seat.user, kRelaxed);
    r.since_ns.store(seat.since_ns, kRelaxed);
    r.guest.store(static_cast<std::uint32_t>(seat.guest), kRelaxed);
}

std::vector<std::uint32_t> SlotTable::guests() const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t slot = kFirstGuestSlot; slot < kSlots; ++slot) {
        const Seat s = seat(slot);
        if (s.guest == Guest::Seated && std::find(out.begin(), out.end(), s.user) == out.end())
            out.push_back(s.user);
    }
    return out;
}

}  // namespace feroce::port
