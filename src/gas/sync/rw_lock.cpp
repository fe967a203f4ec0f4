#include "feroce/gas/sync/rw_lock.hpp"

namespace feroce::gas {
namespace {

constexpr std::uint64_t kWriter = std::uint64_t{1} << 63;
constexpr std::uint64_t kOneLess = ~std::uint64_t{0};

rdma::Task<void> ignore_result(rdma::Task<Result<>> task) {
    static_cast<void>(co_await std::move(task));
}

}  // namespace

rdma::Task<Result<>> RwLock::add(Lanes& lanes, ptr<Line> line, std::uint64_t amount) {
    const auto before = co_await lanes.fetch_add(line.field<&Line::word>(), amount);
    if (!before) co_return before.error();
    co_return Result<>();
}

rdma::Task<Result<bool>> RwLock::enter(Lanes& lanes, ptr<Line> line) {
    const auto before = co_await lanes.fetch_add(line.field<&Line::word>(), 1);
    if (!before) co_return before.error();
    if ((*before & kWriter) == 0) co_return true;
    if (const auto undone = co_await add(lanes, line, kOneLess); !undone) co_return undone.error();
    co_return false;
}

rdma::Task<Result<bool>> RwLock::trying_shared() {
    const auto undo = [&lanes = lanes_, line = line_](bool entered) -> rdma::Task<void> {
        if (entered) static_cast<void>(co_await add(lanes, line, kOneLess));
    };
    rdma::Shelter attempt(lanes_.shelter(), enter(lanes_, line_), undo);
    co_return co_await attempt;
}

rdma::Task<Result<>> RwLock::locking_shared() {
    Backoff backoff(lanes_);
    for (;;) {
        const auto got = co_await trying_shared();
        if (!got) co_return got.error();
        if (*got) co_return Result<>();
        for (bool writing = true; writing;) {  // Reads, so as not to disturb the writer's wait.
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
            const auto word = co_await lanes_.read(line_.field<&Line::word>());
            if (!word) co_return word.error();
            writing = (*word & kWriter) != 0;
        }
    }
}

rdma::Task<Result<>> RwLock::unlocking_shared() {
    rdma::Shelter left(lanes_.shelter(), add(lanes_, line_, kOneLess), rdma::NoUndo{});
    left.shield();
    co_return co_await left;
}

// Gives the word that it found; it is claimed if that is the expected number of readers.
rdma::Task<Result<std::uint64_t>> RwLock::claim(Lanes& lanes, ptr<Line> line,
                                                std::uint64_t readers) {
    co_return co_await lanes.compare_exchange(line.field<&Line::word>(), readers,
                                              readers | kWriter);
}

rdma::Task<Result<std::uint64_t>> RwLock::sheltered_claim(std::uint64_t readers) {
    const auto undo = [&lanes = lanes_, line = line_,
                       readers](std::uint64_t found) -> rdma::Task<void> {
        if (found == readers) static_cast<void>(co_await add(lanes, line, kWriter));
    };
    rdma::Shelter attempt(lanes_.shelter(), claim(lanes_, line_, readers), undo);
    co_return co_await attempt;
}

// A writer's bit in the word, taken back unless the lock was won.
class RwLock::Claim {
public:
    Claim(Lanes& lanes, ptr<Line> line) : lanes_(lanes), line_(line) {}
    ~Claim() {
        if (!won_) lanes_.shelter().spawn(ignore_result(add(lanes_, line_, kWriter)));
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    void won() { won_ = true; }

private:
    Lanes& lanes_;
    ptr<Line> line_;
    bool won_ = false;
};

rdma::Task<Result<bool>> RwLock::trying() {
    const auto before = co_await sheltered_claim(0);
    if (!before) co_return before.error();
    co_return *before == 0;
}

rdma::Task<Result<>> RwLock::locking() {
    Backoff backoff(lanes_);
    std::uint64_t readers = 0;
    for (;;) {  // First keep out other writers, and readers that come.
        const auto before = co_await sheltered_claim(readers);
        if (!before) co_return before.error();
        if (*before == readers) break;
        readers = *before & ~kWriter;
        if ((*before & kWriter) == 0) continue;
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
    Claim own(lanes_, line_);
    while (readers != 0) {  // Then wait for the readers that are inside.
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        const auto word = co_await lanes_.read(line_.field<&Line::word>());
        if (!word) co_return word.error();
        readers = *word & ~kWriter;
    }
    own.won();
    co_return Result<>();
}

// A fetch-add: readers that come and go change the rest of the word meanwhile.
rdma::Task<Result<>> RwLock::unlocking() {
    rdma::Shelter freed(lanes_.shelter(), add(lanes_, line_, kWriter), rdma::NoUndo{});
    freed.shield();
    co_return co_await freed;
}

rdma::Task<Result<>> Semaphore::give(Lanes& lanes, ptr<Line> line, std::int64_t count) {
    const auto before = co_await lanes.fetch_add(line.field<&Line::permits>(), count);
    if (!before) co_return before.error();
    co_return Result<>();
}

rdma::Task<Result<bool>> Semaphore::take(Lanes& lanes, ptr<Line> line) {
    const auto before = co_await lanes.fetch_add(line.field<&Line::permits>(), -1);
    if (!before) co_return before.error();
    if (*before > 0) co_return true;
    if (const auto undone = co_await give(lanes, line, 1); !undone) co_return undone.error();
    co_return false;
}

rdma::Task<Result<bool>> Semaphore::trying() {
    const auto undo = [&lanes = lanes_, line = line_](bool taken) -> rdma::Task<void> {
        if (taken) static_cast<void>(co_await give(lanes, line, 1));
    };
    rdma::Shelter attempt(lanes_.shelter(), take(lanes_, line_), undo);
    co_return co_await attempt;
}

rdma::Task<Result<>> Semaphore::acquiring() {
    Backoff backoff(lanes_);
    for (;;) {
        const auto got = co_await trying();
        if (!got) co_return got.error();
        if (*got) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
    }
}

rdma::Task<Result<>> Semaphore::releasing(std::int64_t count) {
    rdma::Shelter given(lanes_.shelter(), give(lanes_, line_, count), rdma::NoUndo{});
    given.shield();
    co_return co_await given;
}

}  // namespace feroce::gas
