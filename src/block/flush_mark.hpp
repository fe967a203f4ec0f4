// FlushMark: tells the next server that this one was killed while it flushed. Linux tells a failed
// write-back once: a server that is killed between that report and its record would leave a
// successor whose flushes succeed although something is lost. So the mark is set before every call
// that may take the report, and cleared when the result is known and, of a failure, recorded
// (docs/adr/0018). Where the mark is kept must survive the process, not the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

namespace feroce::block {

enum class MarkState : char {
    Clear = '0',
    InFlight = '1',  // A call is being made: nobody knows yet what it will say.
    Failed = '2',    // Something is lost, or it is being asked whether it is.
};

class FlushMark {
public:
    FlushMark() = default;
    virtual ~FlushMark() = default;
    FlushMark(const FlushMark&) = delete;
    FlushMark& operator=(const FlushMark&) = delete;

    // What the predecessor's mark means: true if its last flush counts as failed, which is the
    // first failure that recorded() is to be told of. `is_fine` asks the kernel, and may take its
    // report; a server that is killed meanwhile has asked for its successor, too.
    bool flush_was_lost(MarkState found, const std::function<bool()>& is_fine);

    // Around a call that may take the report; any thread, any number at a time. begin() returns 0,
    // or an errno: the call must not be made and counts as failed.
    int begin();
    void end(bool failed);
    // The writer record has the first so many of the failures that there were.
    void recorded(std::uint64_t failures);

protected:
    // 0 or an errno. One at a time.
    virtual int put(MarkState state) = 0;

private:
    int set(MarkState state);

    std::mutex mutex_;  // Guards what follows, and makes calls wait for a mark that is being put.
    MarkState state_ = MarkState::Clear;
    std::size_t in_flight_ = 0;
    std::uint64_t failures_ = 0;
    std::uint64_t recorded_ = 0;
};

}  // namespace feroce::block
