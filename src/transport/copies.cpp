#include "transport/copies.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "base/shortage.hpp"
#include "mem/touch.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::transport {

namespace {

struct Part {
    mem::Slice slice;
    std::uint64_t at;  // Where it stands in what was asked for.
    // Null: host memory. Found together with the slice, so that both are of one registration:
    // another thread may give the key other memory at any time.
    std::shared_ptr<mem::FarMemory> memory;

    bool is_far() const { return memory != nullptr; }
};

mem::FarLookup find_part(QueuePair& qp, const FarList& list, const mem::Sge& sge,
                         std::uint64_t offset, std::uint64_t size) {
    mem::Memory& memory = qp.services().memory;
    if (sge.address + offset < sge.address) return {{mem::Fault::OutOfBounds, {}}, nullptr};
    if (list.remote)
        return memory.remote_or_far(list.pd, qp.qpn(), RKey{sge.lkey.raw}, sge.address + offset,
                                    size, list.need);
    return memory.local_or_far(list.pd, sge.lkey, sge.address + offset, size, list.need);
}

// All of [offset, offset + size), or the fault of the first that may not be touched.
mem::Fault find_parts(QueuePair& qp, const FarList& list, std::uint64_t offset, std::uint64_t size,
                      std::vector<Part>& out) {
    std::uint64_t done = 0;
    for (const mem::Sge& sge : list.entries) {
        if (done == size) break;
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::uint64_t piece = std::min(sge.length - offset, size - done);
        mem::FarLookup part = find_part(qp, list, sge, offset, piece);
        const mem::Fault fault = part.found.fault;
        if (fault != mem::Fault::None && fault != mem::Fault::Far) return fault;
        out.push_back({part.found.slice, done, std::move(part.memory)});
        done += piece;
        offset = 0;
    }
    return done == size ? mem::Fault::None : mem::Fault::OutOfBounds;
}

void start_far(QueuePair& qp, const std::vector<Part>& parts, mem::CopyDirection direction,
               const CopyGroupPtr& group) {
    std::vector<Copies::Work> work;
    for (const Part& part : parts) {
        if (!part.is_far()) continue;
        work.push_back({part.memory, direction, reinterpret_cast<std::uintptr_t>(part.slice.base),
                        group->bytes().subspan(part.at, part.slice.length)});
    }
    qp.services().copies->start(qp, group, work);
}

}  // namespace

void Copies::add(QueuePair& qp, const CopyGroupPtr& group, const Work& work) {
    entries_.push_back({&qp, group, work.memory, work.direction});
    ++open_;
    ++group->left;
    if (work.direction == mem::CopyDirection::Deliver) qp.count_delivery();
}

void Copies::start(QueuePair& qp, const CopyGroupPtr& group, const std::vector<Work>& list) {
    listener_.make_room(open_ + list.size());
    const mem::CopyToken first = next();
    mem::CopyToken begun = first;
    const bool all = with_memory([&] {
        for (const Work& work : list) add(qp, group, work);
        for (const Work& work : list) {
            work.memory->start({begun, work.direction, work.address, work.staging, &listener_});
            ++begun;
        }
    });
    if (all) return;
    group->fault = mem::Fault::Unmapped;
    const mem::CopyToken last = next();
    for (mem::CopyToken token = begun; token != last; ++token) end(token);
    if (begun == first) throw std::bad_alloc();
}

QueuePair* Copies::finish(mem::CopyToken token, bool good) {
    if (token < first_ || token >= next()) return nullptr;
    const Entry& entry = entries_[token - first_];
    if (entry.group == nullptr) return nullptr;
    if (!good) entry.group->fault = mem::Fault::Unmapped;
    return end(token);
}

// The queue pair to tell, as finish() says.
QueuePair* Copies::end(mem::CopyToken token) {
    const Entry entry = std::exchange(entries_[token - first_], {});
    --open_;
    for (; !entries_.empty() && entries_.front().group == nullptr; ++first_) entries_.pop_front();
    const bool delivered = entry.direction == mem::CopyDirection::Deliver;
    if (entry.qp != nullptr && delivered) entry.qp->end_delivery();
    ASSERT(entry.group->left > 0);
    --entry.group->left;
    return entry.group->is_over() ? entry.qp : nullptr;
}

void Copies::forget(QueuePair& qp) {
    for (Entry& entry : entries_) {
        if (entry.qp != &qp) continue;
        entry.qp = nullptr;
        if (entry.direction == mem::CopyDirection::Deliver) qp.end_delivery();
    }
}

bool Copies::delivers_before(const QueuePair& qp, mem::CopyToken token) const {
    for (std::size_t i = 0; i < entries_.size() && first_ + i < token; ++i)
        if (entries_[i].qp == &qp && entries_[i].direction == mem::CopyDirection::Deliver)
            return true;
    return false;
}

bool Copies::delivers_before(mem::CopyToken token) const {
    for (std::size_t i = 0; i < entries_.size() && first_ + i < token; ++i)
        if (entries_[i].group != nullptr && entries_[i].direction == mem::CopyDirection::Deliver)
            return true;
    return false;
}

bool has_far(const mem::Memory& memory, PdId pd, std::span<const mem::Sge> list,
             mem::AccessSet need) {
    return std::any_of(list.begin(), list.end(), [&](const mem::Sge& sge) {
        return memory.local(pd, sge.lkey, sge.address, sge.length, need).fault == mem::Fault::Far;
    });
}

mem::Fault make_group(QueuePair& qp, const FarList& list, std::uint64_t offset, std::uint32_t size,
                      CopyGroupPtr& out) {
    std::vector<Part> parts;
    const mem::Fault fault = find_parts(qp, list, offset, size, parts);
    if (fault != mem::Fault::None) return fault;
    const auto far =
        std::find_if(parts.begin(), parts.end(), [](const Part& part) { return part.is_far(); });
    CopyGroupPtr group = std::make_shared<CopyGroup>();
    group->staging = far != parts.end() ? far->memory->stage(size) : mem::heap_staging(size);
    ASSERT(group->bytes().size() >= size);
    out = std::move(group);
    return mem::Fault::None;
}

mem::Fault start_gather(QueuePair& qp, const FarList& list, std::uint64_t offset,
                        std::uint32_t size, const CopyGroupPtr& group) {
    std::vector<Part> parts;
    const mem::Fault fault = find_parts(qp, list, offset, size, parts);
    if (fault != mem::Fault::None) return fault;
    for (const Part& part : parts)
        if (!part.is_far() &&
            !mem::read_memory(part.slice, group->bytes().subspan(part.at, part.slice.length)))
            return mem::Fault::Unmapped;
    start_far(qp, parts, mem::CopyDirection::Gather, group);
    return mem::Fault::None;
}

mem::Fault start_deliver(QueuePair& qp, const FarList& list, std::uint64_t offset,
                         std::uint32_t size, const CopyGroupPtr& group) {
    std::vector<Part> parts;
    const mem::Fault fault = find_parts(qp, list, offset, size, parts);
    if (fault != mem::Fault::None) return fault;
    group->all_far =
        std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.is_far(); });
    start_far(qp, parts, mem::CopyDirection::Deliver, group);
    return mem::Fault::None;
}

mem::Fault finish_deliver(QueuePair& qp, const FarList& list, std::uint64_t offset,
                          std::uint32_t size, const CopyGroup& group) {
    if (group.fault != mem::Fault::None) return group.fault;
    if (group.all_far) return mem::Fault::None;
    std::vector<Part> parts;
    const mem::Fault fault = find_parts(qp, list, offset, size, parts);
    if (fault != mem::Fault::None) return fault;
    for (const Part& part : parts)
        if (!part.is_far() &&
            !mem::write_memory(part.slice, group.bytes().subspan(part.at, part.slice.length)))
            return mem::Fault::Unmapped;
    return mem::Fault::None;
}

}  // namespace feroce::transport
