#include "sim/volatile_disk.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace feroce::sim {

using block::kSectorSize;

void VolatileDisk::read(std::uint64_t offset, std::span<std::byte> into) const {
    std::copy_n(seen_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
}

void VolatileDisk::settle(const Write& write, std::size_t from, std::size_t size) {
    std::copy_n(write.bytes.begin() + static_cast<std::ptrdiff_t>(from), size,
                platter_.begin() + static_cast<std::ptrdiff_t>(write.offset + from));
}

void VolatileDisk::write(std::uint64_t offset, std::span<const std::byte> from, bool through) {
    Write write{offset, {from.begin(), from.end()}};
    std::copy(from.begin(), from.end(), seen_.begin() + static_cast<std::ptrdiff_t>(offset));
    // An older write of the log may reach the platter later than this one: only a flush puts them
    // into their order, so a write-through begins with one.
    if (through) {
        end_flush(begin_flush());
        settle(write, 0, write.bytes.size());
    } else {
        log_.push_back(std::move(write));
    }
}

void VolatileDisk::zero(std::uint64_t offset, std::uint64_t length) {
    write(offset, std::vector<std::byte>(length), false);
}

void VolatileDisk::end_flush(std::size_t mark) {
    while (first_ < mark && !log_.empty()) {
        settle(log_.front(), 0, log_.front().bytes.size());
        log_.erase(log_.begin());
        ++first_;
    }
}

void VolatileDisk::forget() {
    for (const Write& write : log_)
        for (std::size_t at = 0; at < write.bytes.size(); at += kSectorSize) {
            if (random_.chance(0.5))
                settle(write, at, kSectorSize);
            else
                ++forgotten_;
        }
    first_ += log_.size();
    log_.clear();
    if (on_loss) on_loss();
}

void VolatileDisk::fail_flush() {
    forget();
    file_errors.add();
    system_errors.add();
    if (random_.chance(0.5)) seen_ = platter_;
}

void VolatileDisk::crash() {
    kill();
    forget();
    seen_ = platter_;
    ++life_;
    // What the kernel knew is gone, and a mark of before means nothing.
    file_errors = system_errors = {};
    flush_mark = block::MarkState::Clear;
}

void VolatileDisk::replace(std::uint64_t store) {
    first_ += log_.size();
    log_.clear();
    std::fill(seen_.begin(), seen_.end(), std::byte{0});
    platter_ = seen_;
    record = {.store = store};
    file_errors = {};
    flush_mark = block::MarkState::Clear;  // It names the file that it is of.
}

VolatileBackend::VolatileBackend(rdma::Loop& loop, VolatileDisk& disk, Prng& random,
                                 const Habits& habits)
    : loop_(loop),
      disk_(disk),
      random_(random),
      habits_(habits),
      life_(disk.life()),
      deaths_(disk.deaths()),
      cursor_(disk.file_errors.sample()),
      jobs_(loop) {
    if (!mark_.flush_was_lost(disk.flush_mark, [this] { return system_is_fine(); })) return;
    disk.record.flush_failed = true;
    mark_.recorded(++told_failures_);
}

// syncfs() by a new descriptor.
bool VolatileBackend::system_is_fine() {
    WriteBackErrors::Cursor cursor = disk_.system_errors.sample();
    return !disk_.system_errors.take(cursor) || !habits_.asks_the_kernel;
}

block::Shape VolatileBackend::shape() {
    block::Shape shape;
    shape.size = disk_.size();
    shape.discard_granularity = kSectorSize;
    shape.volatile_cache = true;
    shape.cache_identity = habits_.tells_of_crashes ? life_ : 0;
    return shape;
}

// Of one step; some are slow.
Duration VolatileBackend::pause() {
    return std::chrono::microseconds(random_.below(random_.chance(0.1) ? 50'000 : 200));
}

rdma::Task<int> VolatileBackend::flush(block::BackendRequest& request) {
    (void)mark_.begin();
    const std::size_t mark = disk_.begin_flush();
    if (disk_.on_flush) disk_.on_flush();
    (void)co_await loop_.sleep(pause());
    if (disk_.life() != life_) co_return EIO;
    // The kernel ends a call that it has begun, whether the process lives or not.
    if (random_.chance(dead() ? habits_.killed_flush_fails : habits_.flush_fails))
        disk_.fail_flush();
    else if (!dead() || random_.chance(0.5))
        disk_.end_flush(mark);
    const bool failed = disk_.file_errors.take(cursor_);
    if (dead()) co_return EIO;
    const bool tells = failed && habits_.tells_of_failed_flushes;
    mark_.end(tells);
    if (!tells) co_return 0;
    ++told_failures_;
    request.lost = true;
    co_return EIO;
}

rdma::Task<void> VolatileBackend::work(block::BackendRequest& request) {
    (void)co_await loop_.sleep(pause());
    // What has not happened by the end of the process does not, and its answer reaches nobody.
    if (dead()) co_return request.done(request, EIO);
    if (request.preflush || request.kind == block::IoKind::Flush)
        if (const int error = co_await flush(request); error != 0)
            co_return request.done(request, error);
    if (request.kind == block::IoKind::Write && !habits_.answers_when_done) {
        jobs_.spawn(write_late(request.offset, {request.data.begin(), request.data.end()}));
        co_return request.done(request, 0);
    }
    execute(request);
    (void)co_await loop_.sleep(pause());
    request.done(request, dead() ? EIO : 0);
}

rdma::Task<void> VolatileBackend::write_late(std::uint64_t offset, std::vector<std::byte> bytes) {
    (void)co_await loop_.sleep(pause());
    if (dead()) co_return;
    if (disk_.on_write) disk_.on_write(offset, bytes);
    disk_.write(offset, bytes, false);
}

rdma::Task<void> VolatileBackend::keep_slowly(block::RecordRequest& request) {
    const std::uint64_t failures = told_failures_;
    (void)co_await loop_.sleep(std::chrono::microseconds(random_.below(2000)));
    if (!dead() && habits_.keeps_grants) disk_.record = request.record;
    if (!dead() && habits_.keeps_grants) mark_.recorded(failures);
    request.done(request, dead() ? EIO : 0);
}

void VolatileBackend::execute(block::BackendRequest& request) {
    switch (request.kind) {
        case block::IoKind::Read:
            return disk_.read(request.offset, request.data);
        case block::IoKind::Write:
            if (disk_.on_write) disk_.on_write(request.offset, request.data);
            return disk_.write(request.offset, request.data, request.fua);
        case block::IoKind::Discard:
        case block::IoKind::WriteZeroes:
            return disk_.zero(request.offset, request.length);
        case block::IoKind::Flush:
        case block::IoKind::SecureErase:
            return;
    }
}

}  // namespace feroce::sim
