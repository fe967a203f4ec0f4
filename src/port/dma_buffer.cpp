#include "port/dma_buffer.hpp"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace feroce::port {
namespace {

const char* proc_folder = "/proc/self";

std::string proc_path(const char* table, int fd) {
    return std::string(proc_folder) + "/" + table + "/" + std::to_string(fd);
}

bool links_to_dma_buffer(int fd) {
    constexpr char kLink[] = "/dmabuf:";
    std::array<char, sizeof kLink - 1> start{};
    const ssize_t length = ::readlink(proc_path("fd", fd).c_str(), start.data(), start.size());
    return length == static_cast<ssize_t>(start.size()) &&
           std::memcmp(start.data(), kLink, start.size()) == 0;
}

// The line "exp_name:\tNAME" of fdinfo; empty if there is none.
std::string exporter_of(int fd) {
    constexpr char kField[] = "exp_name:";
    const Fd file(::open(proc_path("fdinfo", fd).c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 1024> text{};
    const ssize_t got = file.valid() ? ::read(file.get(), text.data(), text.size() - 1) : -1;
    const char* at = got > 0 ? std::strstr(text.data(), kField) : nullptr;
    if (at == nullptr) return {};
    at += sizeof kField - 1;
    at += std::strspn(at, " \t");
    return {at, std::strcspn(at, "\n")};
}

// Leaves errno alone: it runs after a caller's refusal, too.
void tell_exporter(int fd, std::uint64_t flags) {
    const int kept = errno;
    dma_buf_sync sync{};
    sync.flags = flags;
    int result = 0;
    do {
        result = ::ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    errno = kept;
}

constexpr std::uint64_t direction(bool writable) {
    return writable ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ;
}

constexpr Error kNotMappable{EOPNOTSUPP,
                             "the dma-buf's exporter does not let the CPU map its memory, and it "
                             "is not CUDA memory of this process"};

}  // namespace

Result<DmaBufferFacts> examine_dma_buffer(int fd) {
    if (fd < 0 || ::fcntl(fd, F_GETFD) < 0)
        return Error{EBADF, "the dma-buf descriptor is not open"};
    if (!links_to_dma_buffer(fd)) return Error{EINVAL, "the descriptor is not a dma-buf"};
    const off_t size = ::lseek(fd, 0, SEEK_END);
    if (size < 0) return Error{EINVAL, "the dma-buf has no size"};
    (void)::lseek(fd, 0, SEEK_SET);
    return DmaBufferFacts{exporter_of(fd), static_cast<std::uint64_t>(size)};
}

Result<std::unique_ptr<DmaBuffer>> DmaBuffer::map(int fd, std::uint64_t offset,
                                                  std::uint64_t length, bool writable) {
    const Result<DmaBufferFacts> facts = examine_dma_buffer(fd);
    if (!facts) return facts.error();
    if (!facts->holds(offset, length)) return kOutsideDmaBuffer;
    Fd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!own.valid()) return Error{errno, "no file descriptor is left for the dma-buf"};
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t inside = offset % page;
    const std::uint64_t mapped = (inside + length + page - 1) / page * page;
    const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    void* mapping = ::mmap(nullptr, mapped, protection, MAP_SHARED, own.get(),
                           static_cast<off_t>(offset - inside));
    if (mapping == MAP_FAILED && (errno == EACCES || errno == ENOMEM))
        return Error{errno, "the dma-buf cannot be mapped: opened read-only, or no memory"};
    if (mapping == MAP_FAILED) return kNotMappable;
    return std::unique_ptr<DmaBuffer>(
        new DmaBuffer(std::move(own), mapping, mapped, inside, writable));
}

DmaBuffer::DmaBuffer(Fd fd, void* mapping, std::size_t mapped, std::size_t inside, bool writable)
    : fd_(std::move(fd)),
      mapping_(mapping),
      mapped_(mapped),
      first_(static_cast<std::byte*>(mapping) + inside),
      writable_(writable) {
    tell_exporter(fd_.get(), DMA_BUF_SYNC_START | direction(writable_));
}

DmaBuffer::~DmaBuffer() {
    tell_exporter(fd_.get(), DMA_BUF_SYNC_END | direction(writable_));
    (void)::munmap(mapping_, mapped_);
}

void stand_in_for_proc(const char* folder) {
    proc_folder = folder == nullptr ? "/proc/self" : folder;
}

}  // namespace feroce::port
