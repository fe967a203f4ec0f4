// Copies: those between staging and far memory (mem/far_memory.hpp) that queue pairs of one engine
// have started and that are not over. Used under the engine's lock.
//
// A CopyGroup is what a queue pair waits for: some bytes in staging and the copies that fill or
// empty them. Copies cannot be called back, so a group lives as long as one of its copies, and a
// queue pair that has lost interest just lets go of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "mem/far_memory.hpp"
#include "mem/memory.hpp"
#include "mem/sge.hpp"

namespace feroce::transport {

class QueuePair;

struct CopyGroup {
    std::unique_ptr<mem::Staging> staging;
    std::uint32_t left = 0;               // Copies that are not over.
    mem::Fault fault = mem::Fault::None;  // Of one that failed.
    bool all_far = false;                 // Of one that delivers: copies are all that it needs.

    bool is_over() const { return left == 0; }
    ByteSpan bytes() const { return staging->bytes(); }
};
using CopyGroupPtr = std::shared_ptr<CopyGroup>;

class Copies {
public:
    explicit Copies(mem::CopyListener& listener) : listener_(listener) {}

    struct Work {
        std::shared_ptr<mem::FarMemory> memory;
        mem::CopyDirection direction;
        std::uint64_t address;
        ByteSpan staging;  // Of the group.
    };
    // All of one group. May throw, and has started none then. If only some could be started, the
    // group fails when those are over.
    void start(QueuePair& qp, const CopyGroupPtr& group, const std::vector<Work>& list);
    // One is over. The queue pair to tell if it was the last of its group; else null.
    QueuePair* finish(mem::CopyToken token, bool good);
    void forget(QueuePair& qp);  // It is destroyed. Slow.
    // Whether one into memory of this queue pair is left that was started before that one. Slow.
    bool delivers_before(const QueuePair& qp, mem::CopyToken token) const;
    bool delivers_before(mem::CopyToken token) const;                 // For any queue pair.
    mem::CopyToken next() const { return first_ + entries_.size(); }  // Of the next to be started.
    std::size_t size() const { return open_; }

private:
    struct Entry {
        QueuePair* qp = nullptr;  // Null: nobody waits.
        CopyGroupPtr group;       // Null: it is over.
        std::shared_ptr<mem::FarMemory> memory;
        mem::CopyDirection direction = mem::CopyDirection::Gather;
    };
    void add(QueuePair& qp, const CopyGroupPtr& group, const Work& work);
    QueuePair* end(mem::CopyToken token);

    mem::CopyListener& listener_;
    std::deque<Entry> entries_;  // By their tokens, from first_ on.
    mem::CopyToken first_ = 1;
    std::size_t open_ = 0;  // Entries that are not over.
};

// What a half of a machine keeps while copies are on their way. Few queue pairs have one, so it
// lies apart: see QueuePair::far_work().
struct FarWork {
    virtual ~FarWork() = default;
};

struct FarPlaces {
    std::unique_ptr<FarWork> inbound;
    std::unique_ptr<FarWork> outbound;
};

// The memory of a message, some of which may be far: a list of our own, or what a peer's key names.
struct FarList {
    PdId pd;
    mem::AccessSet need;
    bool remote = false;  // Then the keys are rkeys, through this queue pair.
    std::vector<mem::Sge> entries;
};

bool has_far(const mem::Memory& memory, PdId pd, std::span<const mem::Sge> list,
             mem::AccessSet need);

// Staging for the bytes [offset, offset + size) of the list, of the kind of its first far entry
// there. `out` is null if there is a fault. All of these may throw std::bad_alloc.
mem::Fault make_group(QueuePair& qp, const FarList& list, std::uint64_t offset, std::uint32_t size,
                      CopyGroupPtr& out);
// Fills the group's staging from the list at `offset`: host memory now, far memory by copies.
mem::Fault start_gather(QueuePair& qp, const FarList& list, std::uint64_t offset,
                        std::uint32_t size, const CopyGroupPtr& group);
// Far memory by copies. Host memory is left to finish_deliver(), once the group is over.
mem::Fault start_deliver(QueuePair& qp, const FarList& list, std::uint64_t offset,
                         std::uint32_t size, const CopyGroupPtr& group);
mem::Fault finish_deliver(QueuePair& qp, const FarList& list, std::uint64_t offset,
                          std::uint32_t size, const CopyGroup& group);

}  // namespace feroce::transport
