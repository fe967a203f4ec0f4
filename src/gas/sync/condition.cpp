#include "feroce/gas/sync/condition.hpp"

#include <cerrno>

namespace feroce::gas {
namespace {

// The bits of numbers whose waiters have given up.
class Left {
public:
    explicit Left(Condition::Line& line) : line_(line) {}
    bool has(std::uint64_t number) const { return (word(number).load() & bit(number)) != 0; }
    void flip(std::uint64_t number) { word(number).store(word(number).load() ^ bit(number)); }

private:
    plain<std::uint64_t>& word(std::uint64_t number) const {
        return line_.left[number / 64 % Condition::kLeftWords];
    }
    static std::uint64_t bit(std::uint64_t number) { return std::uint64_t{1} << number % 64; }

    Condition::Line& line_;
};

// Lets `most` waiters go, and passes over those that have given up.
void let_go(Condition::Line& line, std::uint64_t most) {
    Left left(line);
    const std::uint64_t waiting = line.waiting.load();
    std::uint64_t next = line.woken.load();
    for (; next < waiting; ++next) {
        if (left.has(next))
            left.flip(next);
        else if (most-- == 0)
            break;
    }
    line.woken.store(next);
}

}  // namespace

rdma::Task<Result<>> Condition::await_turn(std::uint64_t number) {
    Lanes& lanes = mutex_.lanes();
    Backoff backoff(lanes);
    for (;;) {
        const auto woken = co_await lanes.read(line_.field<&Line::woken>());
        if (!woken) co_return woken.error();
        if (number < *woken) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
    }
}

rdma::Task<Result<std::uint64_t>> Condition::draw_number() {
    Lanes& lanes = mutex_.lanes();
    const auto number = co_await lanes.read(line_.field<&Line::waiting>());
    if (!number) co_return number;
    const auto counted = co_await lanes.write(line_.field<&Line::waiting>(), *number + 1);
    if (!counted) co_return counted.error();
    co_return number;
}

rdma::Task<Result<>> Condition::waiting() {
    const auto number = co_await draw_number().shielded();
    if (!number) co_return number.error();
    if (const auto freed = co_await mutex_.unlock(); !freed) co_return freed;
    const auto woken = co_await await_turn(*number);
    // Whatever the limits: the caller is going to unlock it.
    if (const auto locked = co_await mutex_.lock().shielded(); !locked) co_return locked;
    if (woken) co_return woken;
    co_return co_await give_up(*number, woken.error()).shielded();
}

// With the mutex held: nobody is going to be woken by a number that nobody waits for.
rdma::Task<Result<>> Condition::give_up(std::uint64_t number, Error why) {
    Lanes& lanes = mutex_.lanes();
    auto line = co_await lanes.read(line_);
    if (!line) co_return line.error();
    const std::uint64_t woken = line->woken.load();
    if (number < woken) co_return Result<>();  // It was told, only too late to see it in time.
    if (number - woken < kWindow) {
        Left(*line).flip(number);
        let_go(*line, 0);
    } else {  // Too many wait: those before it are woken for nothing and look again.
        let_go(*line, number + 1 - woken);
    }
    if (const auto told = co_await lanes.write(line_, *line); !told) co_return told;
    co_return why;
}

// Shielded: a write of a caller that gave up could come after the mutex is somebody else's.
rdma::Task<Result<>> Condition::wake(std::uint64_t most) {
    Lanes& lanes = mutex_.lanes();
    auto line = co_await lanes.read(line_);
    if (!line) co_return line.error();
    const std::uint64_t before = line->woken.load();
    let_go(*line, most);
    if (line->woken.load() == before) co_return Result<>();
    co_return co_await lanes.write(line_, *line);
}

rdma::Task<Result<>> Event::put(std::uint64_t open) {
    co_return co_await lanes_.write(line_.field<&Line::open>(), open);
}

rdma::Task<Result<>> Event::waiting() {
    Backoff backoff(lanes_);
    for (;;) {
        const auto open = co_await lanes_.read(line_.field<&Line::open>());
        if (!open) co_return open.error();
        if (*open != 0) co_return Result<>();
        if (const auto paused = co_await backoff.pause(); !paused) co_return paused;
    }
}

}  // namespace feroce::gas
