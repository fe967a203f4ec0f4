#include "verbs/lint_marks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "mem/touch.hpp"
#include "verbs/lint.hpp"

namespace feroce::verbs {
namespace {

constexpr std::size_t kMarkBytes = sizeof lint::kMark;

// Empty if it is not memory that the CPU may write.
mem::Slice mark_target(process::Process& process, std::uint32_t pd, const lint::Request& request,
                       std::size_t bytes) {
    const lint::Sge& sge = request.sges[0];
    const mem::Lookup found = process.memory().local(PdId{pd}, LKey{sge.key}, sge.address, bytes,
                                                     mem::AccessSet(mem::Access::LocalWrite));
    if (found.fault != mem::Fault::None || found.slice.null_region()) return {};
    return found.slice;
}

}  // namespace

// At any address. Not by the C library, where sanitizers look at what is read.
bool has_mark(ByteView bytes) {
    for (std::size_t at = 0; at + kMarkBytes <= bytes.size(); ++at) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, kMarkBytes);
        if (word == lint::kMark) return true;
    }
    return false;
}

bool memory_has_mark(mem::Slice memory) {
    std::array<std::byte, 4096> buffer;
    constexpr std::size_t kOverlap = kMarkBytes - 1;  // A mark may lie across two pieces.
    for (std::uint64_t at = 0; at + kMarkBytes <= memory.length; at += buffer.size() - kOverlap) {
        const std::uint64_t size = std::min<std::uint64_t>(buffer.size(), memory.length - at);
        const auto piece = std::span(buffer).first(static_cast<std::size_t>(size));
        if (!mem::read_memory(memory.part(at, size), piece)) return false;
        if (has_mark(piece)) return true;
    }
    return false;
}

lint::Marks Lint::mark(std::uint32_t pd, const lint::Request& request) {
    lint::Marks out;
    if (wishes_.any_order) return out;  // Its experiment is not about what lint writes.
    const std::size_t bytes =
        std::min<std::size_t>(request.sges[0].length, lint::Marks::kBytesMax) / kMarkBytes *
        kMarkBytes;
    const mem::Slice slice = mark_target(process_, pd, request, bytes);
    if (slice.length != bytes) return out;
    if (!mem::read_memory(slice, std::span(out.before).first(bytes))) return out;
    std::array<std::byte, lint::Marks::kBytesMax> marks;
    for (std::size_t at = 0; at < bytes; at += kMarkBytes)
        std::memcpy(marks.data() + at, &lint::kMark, kMarkBytes);
    if (mem::write_memory(slice, std::span(marks).first(bytes)))
        out.bytes = static_cast<std::uint8_t>(bytes);
    else  // Some may have been written, so as many can be again.
        (void)mem::write_memory(slice, std::span(out.before).first(bytes));
    return out;
}

bool Lint::carries_mark(PdId pd, const mem::Sge& sge) {
    const mem::Lookup found = process_.memory().local(pd, sge.lkey, sge.address, sge.length, {});
    return found.fault == mem::Fault::None && memory_has_mark(found.slice);
}

// Words that the device has written meanwhile stay.
void Lint::unmark(std::uint32_t pd, const lint::Request& request) {
    const mem::Slice slice = mark_target(process_, pd, request, request.marks.bytes);
    for (std::size_t at = 0; at + kMarkBytes <= slice.length; at += kMarkBytes) {
        std::array<std::byte, kMarkBytes> now;
        const mem::Slice word = slice.part(at, kMarkBytes);
        if (!mem::read_memory(word, now)) return;
        if (!has_mark(now)) continue;
        if (!mem::write_memory(word, std::span(request.marks.before).subspan(at, kMarkBytes)))
            return;
    }
}

}  // namespace feroce::verbs
