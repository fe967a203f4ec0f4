#include "port/ring_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "base/assert.hpp"
#include "base/uncancelled.hpp"
#include "port/memory_file.hpp"
#include "port/packet_ring.hpp"

namespace feroce::port {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

bool has_its_pages(int fd) {
    return !ring_takes_all_pages() || ::fallocate(fd, 0, 0, static_cast<off_t>(kRingSize)) == 0;
}

}  // namespace

bool ring_takes_all_pages() {
    const Uncancelled calls;
    const Fd setting(::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
    char mode = '0';
    return setting.valid() && ::read(setting.get(), &mode, 1) == 1 && mode == '2';
}

bool RingFile::map_pages(int fd) {
    ASSERT(memory_ == nullptr);
    void* pages = ::mmap(nullptr, kRingSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED) return false;
    memory_ = pages;
    return true;
}

Fd RingFile::make() {
    if (!may_make_file(static_cast<off_t>(kRingSize))) return Fd();
    Fd fd(::memfd_create("feroce-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const bool made = fd.valid() && ::ftruncate(fd.get(), static_cast<off_t>(kRingSize)) == 0 &&
                      has_its_pages(fd.get()) &&
                      ::fcntl(fd.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) == 0 &&
                      map_pages(fd.get());
    return made ? std::move(fd) : Fd();
}

bool RingFile::map(Fd made) {
    // Seals first: until then the size may change.
    const int seals = ::fcntl(made.get(), F_GET_SEALS);
    if (seals < 0 || (seals & kSeals) != kSeals) return false;
    struct stat about {};
    return ::fstat(made.get(), &about) == 0 && about.st_size == static_cast<off_t>(kRingSize) &&
           map_pages(made.get());
}

void RingFile::unmap() {
    if (memory_ != nullptr) ::munmap(std::exchange(memory_, nullptr), kRingSize);
}

}  // namespace feroce::port
