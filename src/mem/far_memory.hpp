// FarMemory: memory that a region names and the CPU does not reach, such as a GPU's. Bytes travel
// between it and host memory by copies that take a while: start() begins one and returns, and a
// CopyListener hears when it is over. What the CPU can load and store is not far, however it came
// to be (managed memory, a mapped dma-buf): that is registered as host memory.
//
// A kind of far memory is one class derived from this one, made by whoever registers the region
// (RegionSpec::far). Nothing below process/ knows which kinds there are.
//
// Life. The region holds one reference, and each copy that was started another. After
// Memory::deregister_region() and a pass through every shard's lock no new copy starts; then the
// caller owes close(), which returns when none is left. Only then may the program free the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"

namespace feroce::mem {

// Names one copy of one listener. Never used twice.
using CopyToken = std::uint64_t;

enum class CopyDirection : std::uint8_t {
    Gather,   // From far memory to staging.
    Deliver,  // From staging to far memory.
};

class CopyListener {
public:
    virtual ~CopyListener() = default;
    // So many copies may be on their way or told of and not looked at, from now on: copy_done() has
    // room for them. By the one who starts copies, before it does. May throw std::bad_alloc.
    virtual void make_room(std::size_t) {}
    // Once for each copy that was started, from any thread, also from within start(). `good`: for
    // Gather the bytes are in staging; for Deliver every reader of the far memory (a GPU's kernels
    // too) finds them there. Not good: the memory is gone or the copy failed; what has been written
    // is unspecified. Takes no lock that a caller of start() may hold, and
    // does not throw.
    virtual void copy_done(CopyToken token, bool good) = 0;
};

// Host memory that the copies of one kind are fast with (pinned, for a GPU). Not registered: plain
// loads and stores are fine. Whoever holds it may let go of it in any thread.
class Staging {
public:
    virtual ~Staging() = default;
    ByteSpan bytes() const { return bytes_; }

protected:
    explicit Staging(ByteSpan bytes) : bytes_(bytes) {}

private:
    ByteSpan bytes_;
};

// From the heap. May throw std::bad_alloc.
std::unique_ptr<Staging> heap_staging(std::size_t size);

// Into staging, for a copy to far memory. On amd64 much at once goes past the caches: what reads it
// is no CPU, and would have to fetch it from the cache of one.
void fill_staging(ByteSpan staging, ByteView from);  // As large.

struct Copy {
    CopyToken token = 0;
    CopyDirection direction = CopyDirection::Gather;
    std::uint64_t address = 0;  // In the numbering of RegionSpec::address; within the region.
    ByteSpan staging;           // All of it, and valid until copy_done(). At most kPieceBytes.
    CopyListener* listener = nullptr;  // Valid until copy_done() has returned.
};

class FarMemory {
public:
    // One copy moves at most this much: large enough that its fixed cost is small beside it, small
    // enough that the wire and the copies work at the same time.
    static constexpr std::uint32_t kPieceBytes = 256 * 1024;

    virtual ~FarMemory() = default;
    // Both are called under a shard's lock, by any thread: they take little time, wait for nothing
    // and call no driver. A kind without staging left gives heap_staging() and copies twice.
    virtual std::unique_ptr<Staging> stage(std::uint32_t size) = 0;  // size <= kPieceBytes.
    // Copies that are started are independent of each other: no order is expected between them.
    // Without memory to start it the copy is over at once, and not good.
    virtual void start(const Copy& copy) = 0;  // Never throws.
    // Waits until every copy that was started before is over and told. Others may start meanwhile.
    // Without a lock.
    virtual void drain() { close(); }
    // No start() follows. Waits until every copy of this memory is over and told. Without a lock.
    virtual void close() = 0;
};

}  // namespace feroce::mem
