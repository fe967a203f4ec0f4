// What tests that give operations up have in common: an operation is stopped, or its coroutine
// destroyed, at each of its suspension points in turn.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/suspension.hpp"
#include "feroce/task_group.hpp"

namespace feroce::sim {

// The k-th time that something waits on a loop. One at a time.
class Point {
public:
    Point(rdma::Loop& loop, std::size_t k, std::function<void()> then)
        : loop_(loop), k_(k), then_(std::move(then)) {
        current = this;
        rdma::detail::at_suspension = [](rdma::Suspension& waiting) {
            if (current != nullptr && &waiting.loop() == &current->loop_) current->pass();
        };
    }
    ~Point() {
        rdma::detail::at_suspension = nullptr;
        current = nullptr;
    }
    Point(const Point&) = delete;
    Point& operator=(const Point&) = delete;

    bool reached() const { return passed_ >= k_; }

private:
    void pass() {
        if (++passed_ == k_) then_();
    }

    static inline Point* current = nullptr;
    rdma::Loop& loop_;
    std::size_t k_;
    std::function<void()> then_;
    std::size_t passed_ = 0;
};

enum class How { Stop, Destroy };

template <class T>
rdma::Task<void> keep(rdma::Task<T> task, std::optional<T>& into) {
    into = co_await std::move(task);
}

// Runs the task and gives it up at its k-th point. Nothing: it was destroyed.
template <class T>
std::optional<T> run_until(rdma::Loop& loop, rdma::Task<T> task, std::size_t k, How how,
                           bool& reached) {
    std::stop_source source;
    bool destroy = false;
    const Point point(loop, k, [&] {
        if (how == How::Stop) source.request_stop();
        destroy = how == How::Destroy;
    });
    std::optional<T> out;
    {
        rdma::TaskGroup group(loop);
        group.spawn(keep(std::move(task).with(source.get_token()), out));
        while (!group.empty() && !destroy) loop.poll_or_wait();
    }
    reached = point.reached();
    return out;
}

// The same at the k-th round of the loop: a request waits at one point for many things.
template <class T>
std::optional<T> run_rounds(rdma::Loop& loop, rdma::Task<T> task, std::size_t k, How how,
                            bool& reached) {
    std::stop_source source;
    std::optional<T> out;
    rdma::TaskGroup group(loop);
    group.spawn(keep(std::move(task).with(source.get_token()), out));
    for (std::size_t round = 1; !group.empty(); ++round) {
        reached = reached || round == k;
        if (round == k && how == How::Destroy) break;
        if (round == k) source.request_stop();
        loop.poll_or_wait();
    }
    return out;
}

// Both, for tests of requests.
struct Way {
    How how;
    bool rounds;  // False: points.

    const char* name() const {
        if (rounds) return how == How::Stop ? "stopped, rounds" : "destroyed, rounds";
        return how == How::Stop ? "stopped" : "destroyed";
    }
};
inline constexpr Way kWays[] = {
    {How::Stop, false}, {How::Destroy, false}, {How::Stop, true}, {How::Destroy, true}};

template <class T>
std::optional<T> run_until(rdma::Loop& loop, rdma::Task<T> task, std::size_t k, Way way,
                           bool& reached) {
    return way.rounds ? run_rounds(loop, std::move(task), k, way.how, reached)
                      : run_until(loop, std::move(task), k, way.how, reached);
}

// If there is an error it is that of the stop.
template <class T>
void expect_cancelled(const std::optional<rdma::Result<T>>& outcome) {
    const int code = !outcome || *outcome ? ECANCELED : outcome->error().code;
    EXPECT_EQ(code, ECANCELED);
}

inline rdma::Task<void> nap(rdma::Loop& loop, Duration time) {
    static_cast<void>(co_await loop.sleep(time));
}

// The loop runs while its thread waits for others.
template <class Condition>
bool wait_for(rdma::Loop& loop, Condition condition) {
    for (const Instant end = loop.after(std::chrono::seconds(20)); !condition();) {
        if (loop.now() > end) return false;
        loop.run(nap(loop, std::chrono::microseconds(5)));
    }
    return true;
}

// The same for what takes longer: looks a thousand times a second.
template <class Condition>
bool wait_for(rdma::Loop& loop, Duration at_most, Condition condition) {
    for (const Instant end = loop.after(at_most); !condition();) {
        if (loop.now() > end) return false;
        loop.run(nap(loop, std::chrono::milliseconds(1)));
    }
    return true;
}

}  // namespace feroce::sim
