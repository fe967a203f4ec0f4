#include "sim/disk_history.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace feroce::sim {

void DiskHistory::blame(const std::string& what, std::size_t sector) {
    if (verdict_.empty()) verdict_ = what + ": sector " + std::to_string(sector);
}

DiskHistory::WriteId DiskHistory::begin_write(HandleId handle, std::size_t first, std::size_t count,
                                              Promise promise) {
    ASSERT(handle > 0 && handle <= handles_ && first + count <= sectors_);
    const auto id = static_cast<WriteId>(writes_.size());
    writes_.push_back(
        {.handle = handle, .first = first, .count = count, .promise = promise, .begun = now()});
    for (std::size_t i = 0; i < count; ++i) writers_[first + i].push_back(id);
    return id;
}

void DiskHistory::end_write(WriteId id, Answer answer) {
    Write& write = writes_[id];
    if (answer != Answer::Done) return;
    if (write.sectors_landed < write.count)
        blame("a write was acknowledged and has not landed", write.first);
    write.acknowledged = now();
    if (write.promise.fua || write.promise.preflush) check_promise(write.handle, write.begun);
    if (write.promise.preflush) cover(write.handle, write.begun);
    if (write.promise.fua) make_durable(write);
}

std::size_t DiskHistory::begin_flush(HandleId handle) {
    flushes_.push_back({handle, now()});
    return flushes_.size() - 1;
}

void DiskHistory::end_flush(std::size_t number, Answer answer) {
    const Flush& flush = flushes_[number];
    if (answer == Answer::Lost) refused_.try_emplace(flush.handle, now());
    if (answer != Answer::Done) return;
    check_promise(flush.handle, flush.begun);
    cover(flush.handle, flush.begun);
}

void DiskHistory::check_promise(HandleId handle, Time begun) {
    const auto refused = refused_.find(handle);
    if (refused != refused_.end() && refused->second < begun)
        blame("something was promised after a flush had failed: handle " + std::to_string(handle),
              0);
}

void DiskHistory::cover(HandleId handle, Time begun) {
    for (Write& write : writes_)
        if (write.handle == handle && write.acknowledged < begun) make_durable(write);
}

void DiskHistory::make_durable(Write& write) {
    if (write.durable != kNever) return;
    write.durable = now();
    ++durable_;
}

std::size_t DiskHistory::begin_read(HandleId handle, std::size_t first) {
    reads_.push_back({handle, first, now()});
    return reads_.size() - 1;
}

void DiskHistory::end_read(std::size_t number, std::span<const Version> found) {
    const Read& read = reads_[number];
    if (replaced_at_ > read.begun) return;  // Of which of the two stores it was cannot be said.
    if (read.handle <= replaced_handle_) blame("a replaced store was read as the old", read.first);
    for (std::size_t i = 0; i < found.size(); ++i) judge(read.first + i, found[i], read);
}

bool DiskHistory::is_before(WriteId older, const Write& younger) const {
    if (older == 0) return true;
    const Write& write = writes_[older];
    return write.handle < younger.handle || write.acknowledged < younger.begun;
}

void DiskHistory::judge(std::size_t sector, Version found, const Read& read) {
    if (!found) return blame("a torn sector", sector);
    const auto& writers = writers_[sector];
    if (*found != 0 && std::find(writers.begin(), writers.end(), *found) == writers.end())
        return blame("a write from nowhere", sector);
    if (*found != 0 && writes_[*found].handle <= replaced_handle_)
        return blame("a write of a replaced store", sector);
    for (const WriteId id : writers) {
        const Write& write = writes_[id];
        if (write.handle <= replaced_handle_ || id == *found) continue;
        if (write.acknowledged > read.begun || !is_before(*found, write)) continue;
        if (write.durable < read.begun) return blame("a durable write is gone", sector);
        if (write.losses == losses_) return blame("an acknowledged write is gone", sector);
    }
}

void DiskHistory::landed(std::size_t sector, Version id) {
    if (!id || *id == 0 || *id >= writes_.size()) return blame("nobody wrote what landed", sector);
    Write& write = writes_[*id];
    if (sector < write.first || sector >= write.first + write.count)
        return blame("a write landed elsewhere", sector);
    if (write.handle <= replaced_handle_)
        return blame("a write for a store that was replaced landed", sector);
    if (is_over(write.handle)) return blame("a write of an older generation landed", sector);
    if (write.acknowledged != kNever)
        return blame("a write landed again after it was acknowledged", sector);
    ++write.sectors_landed;
    write.losses = losses_;
}

void DiskHistory::replaced() {
    replaced_handle_ = handles_;
    replaced_at_ = now();
}

}  // namespace feroce::sim
