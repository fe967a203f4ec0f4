// What the server knows of each chunk of a session: whether a request is being worked on, which was
// the last, and how it ended. This is what makes a request that arrives again, through another path
// after the first failed, take effect once.
//
// Between peers of ours a request has a sequence number that grows and that a repetition keeps:
//   the number of the running request  -> Join: the running one answers to the new place;
//   the number of the last request     -> Replay: answer again, do not execute again;
//   a smaller number                   -> Stale: nobody waits for it any more;
//   a larger number                    -> Execute.
// The kernel's requests have none. One that hits a running request through another path is a
// repetition, or the client has given up the old one: it is held until the old one is done, so that
// no handler ever works on a chunk that two requests share. It may then execute twice.
//
// No memory is touched here. Numbers of paths name incarnations and are never used again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace feroce::rtrs {

using PathNumber = std::uint64_t;
inline constexpr PathNumber kNoPath = 0;

class ChunkTable {
public:
    enum class Verdict {
        Execute,
        Join,
        Replay,
        Hold,
        Stale,
        Busy,  // The client breaks the rules: close the path that this came through.
    };
    struct Finished {
        PathNumber answer_to = kNoPath;  // kNoPath: the path is gone, nobody to answer.
        bool release_held = false;       // A held request is now admitted: execute it.
    };

    explicit ChunkTable(std::uint16_t count) : chunks_(count) {}

    Verdict admit(std::uint16_t chunk, std::uint64_t sequence, PathNumber path);
    // After Execute, Join or a released hold: the work on the chunk has ended.
    Finished finish(std::uint16_t chunk, int result);
    // Requests of this path are answered to nobody; one that it holds is forgotten.
    void path_closed(PathNumber path);

    bool running(std::uint16_t chunk) const { return chunks_[chunk].running; }
    // Where the running request came from first; valid while running.
    PathNumber path_of(std::uint16_t chunk) const { return chunks_[chunk].path; }
    int result(std::uint16_t chunk) const { return chunks_[chunk].result; }
    // Requests still being worked on whose path is closed and that no repetition has joined. Zero
    // means that nothing that came through closed paths is at work any more.
    std::size_t orphans() const;

private:
    struct Chunk {
        bool running = false;
        std::uint64_t sequence = 0;  // Of the running or last request.
        int result = 0;              // Of the last request; valid if not running.
        PathNumber path = kNoPath;   // Through which the running request came.
        bool path_open = false;
        PathNumber held = kNoPath;
    };

    static Verdict admit_numbered(Chunk& chunk, std::uint64_t sequence, PathNumber path);
    static Verdict admit_plain(Chunk& chunk, PathNumber path);

    std::vector<Chunk> chunks_;
};

}  // namespace feroce::rtrs
