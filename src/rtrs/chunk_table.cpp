// See chunk_table.hpp.
#include "rtrs/chunk_table.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "rtrs/request_header.hpp"

namespace feroce::rtrs {

ChunkTable::Verdict ChunkTable::admit(std::uint16_t chunk, std::uint64_t sequence,
                                      PathNumber path) {
    ASSERT(chunk < chunks_.size() && path != kNoPath);
    Chunk& entry = chunks_[chunk];
    return sequence == kNoSequence ? admit_plain(entry, path)
                                   : admit_numbered(entry, sequence, path);
}

ChunkTable::Verdict ChunkTable::admit_numbered(Chunk& chunk, std::uint64_t sequence,
                                               PathNumber path) {
    if (sequence < chunk.sequence) return Verdict::Stale;
    const bool same = sequence == chunk.sequence;
    if (chunk.running) {
        // A client whose request was given up asks for the path to be drained before it uses the
        // chunk again; and through one path nothing is sent twice.
        if (!same || chunk.path == path) return Verdict::Busy;
        chunk.path = path;
        chunk.path_open = true;
        return Verdict::Join;
    }
    if (same) return Verdict::Replay;
    chunk = {.running = true, .sequence = sequence, .path = path, .path_open = true};
    return Verdict::Execute;
}

ChunkTable::Verdict ChunkTable::admit_plain(Chunk& chunk, PathNumber path) {
    if (!chunk.running) {
        chunk = {.running = true, .path = path, .path_open = true};
        return Verdict::Execute;
    }
    if (chunk.path == path || chunk.held == path) return Verdict::Busy;
    chunk.held = path;  // A third path: the client has given up the second.
    return Verdict::Hold;
}

ChunkTable::Finished ChunkTable::finish(std::uint16_t chunk, int result) {
    Chunk& entry = chunks_[chunk];
    ASSERT(entry.running);
    Finished finished{entry.path_open ? entry.path : kNoPath, entry.held != kNoPath};
    entry.result = result;
    entry.running = finished.release_held;
    entry.path = entry.held;
    entry.path_open = finished.release_held;
    entry.held = kNoPath;
    return finished;
}

void ChunkTable::path_closed(PathNumber path) {
    for (Chunk& chunk : chunks_) {
        if (chunk.path == path) chunk.path_open = false;
        if (chunk.held == path) chunk.held = kNoPath;
    }
}

std::size_t ChunkTable::orphans() const {
    return static_cast<std::size_t>(std::count_if(
        chunks_.begin(), chunks_.end(), [](const Chunk& c) { return c.running && !c.path_open; }));
}

}  // namespace feroce::rtrs
