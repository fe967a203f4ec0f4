// Back ends without a disk: memory and nothing.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "feroce/block/backend.hpp"

namespace feroce::block {

namespace {

// Pages of a mapping: untouched ones cost nothing, and discarding gives them back.
class MemoryBackend final : public Backend {
public:
    MemoryBackend(std::byte* bytes, std::uint64_t size, std::uint64_t identity)
        : bytes_(bytes), size_(size), identity_(identity) {
        record_.store = identity;
    }
    ~MemoryBackend() override { ::munmap(bytes_, size_); }

    Shape shape() override {
        Shape shape;
        shape.size = size_;
        shape.discard_granularity = 4096;
        shape.cache_identity = identity_;
        return shape;
    }

    void submit(BackendRequest& request) override {
        std::byte* const at = bytes_ + request.offset;
        switch (request.kind) {
            case IoKind::Read:
                std::memcpy(request.data.data(), at, request.length);
                break;
            case IoKind::Write:
                std::memcpy(at, request.data.data(), request.length);
                break;
            case IoKind::Flush:
                break;
            case IoKind::Discard:
            case IoKind::WriteZeroes:
                zero(at, request.length);
                break;
            case IoKind::SecureErase:
                return request.done(request, EOPNOTSUPP);
        }
        request.done(request, 0);
    }

    std::optional<WriterRecord> writer_record() override { return record_; }
    void keep(RecordRequest& request) override {
        record_ = request.record;
        request.done(request, 0);
    }

private:
    static void zero(std::byte* at, std::uint64_t length) {
        constexpr std::uintptr_t kPage = 4096;
        const auto begin = reinterpret_cast<std::uintptr_t>(at);
        const std::uintptr_t end = begin + length;
        const std::uintptr_t first = (begin + kPage - 1) / kPage * kPage;
        const std::uintptr_t last = end / kPage * kPage;
        const bool whole = first < last && ::madvise(reinterpret_cast<void*>(first), last - first,
                                                     MADV_DONTNEED) == 0;
        if (!whole) {
            std::memset(at, 0, length);
            return;
        }
        std::memset(at, 0, first - begin);
        std::memset(reinterpret_cast<void*>(last), 0, end - last);
    }

    std::byte* bytes_;
    std::uint64_t size_;
    std::uint64_t identity_;
    WriterRecord record_;
};

class NullBackend final : public Backend {
public:
    explicit NullBackend(std::uint64_t size) : size_(size) {}

    Shape shape() override {
        Shape shape;
        shape.size = size_;
        shape.discard_granularity = kSectorSize;
        return shape;
    }

    void submit(BackendRequest& request) override {
        if (request.kind == IoKind::Read)
            std::fill(request.data.begin(), request.data.end(), std::byte{0});
        request.done(request, request.kind == IoKind::SecureErase ? EOPNOTSUPP : 0);
    }
    std::optional<WriterRecord> writer_record() override { return std::nullopt; }

private:
    std::uint64_t size_;
};

}  // namespace

rdma::Result<std::shared_ptr<Backend>> memory_backend(std::uint64_t size, std::uint64_t identity) {
    void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return rdma::Error(errno, "there is no room for a disk of " + std::to_string(size) +
                                      " bytes in memory; ask for a smaller one");
    return std::shared_ptr<Backend>(
        std::make_shared<MemoryBackend>(static_cast<std::byte*>(at), size, identity));
}

std::shared_ptr<Backend> null_backend(std::uint64_t size) {
    return std::make_shared<NullBackend>(size);
}

}  // namespace feroce::block
