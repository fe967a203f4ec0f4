// Requests through failing paths: done once each, in order of their age, and no chunk is used for
// something newer while an older request may still be alive in it.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <set>

#include "base/random.hpp"
#include "rtrs/request_book.hpp"

namespace feroce::rtrs {
namespace {

using namespace std::chrono_literals;

struct Tracked : Request {
    int times_done = 0;
    Tracked() {
        done = [](Request& request) { ++static_cast<Tracked&>(request).times_done; };
    }
};

Fence fence_of(std::uint16_t incarnation, bool drain = false) {
    return {Uuid{}, incarnation, drain};
}

// The answer for a permit comes through a path. False: nothing of that permit is in flight there.
bool answer(RequestBook& book, std::uint16_t permit, InFlight& path, int error, Instant now) {
    Request* const request = book.in_flight(permit, path);
    if (request != nullptr) book.end(*request, {error, ""}, now);
    return request != nullptr;
}

TEST(RequestBook, FollowsARequestToItsAnswer) {
    RequestBook book(1);
    InFlight path;
    Tracked first, second;
    book.submit(first, Instant{});
    book.submit(second, Instant{});
    EXPECT_EQ(book.next(), &first);
    book.sent(first, path);
    EXPECT_EQ(book.next(), nullptr);
    EXPECT_TRUE(answer(book, first.permit, path, EIO, Instant{5us}));
    EXPECT_EQ(first.error, EIO);
    EXPECT_EQ(first.times_done, 1);
    EXPECT_EQ(book.next(), &second);
    EXPECT_GT(second.sequence, first.sequence);
    EXPECT_FALSE(answer(book, second.permit, path, 0, Instant{})) << "not sent yet";
    EXPECT_EQ(book.failed(), 1u);
}

TEST(RequestBook, AnAnswerThroughAnotherPathIsNone) {
    RequestBook book(1);
    InFlight path, other;
    Tracked request;
    book.submit(request, Instant{});
    book.sent(request, path);
    EXPECT_FALSE(answer(book, 0, other, 0, Instant{}));
    EXPECT_TRUE(answer(book, 0, path, 0, Instant{}));
    EXPECT_FALSE(answer(book, 0, path, 0, Instant{}));
    EXPECT_EQ(request.times_done, 1);
    EXPECT_TRUE(book.idle());
}

TEST(RequestBook, AFailedPathsRequestsWaitForTheFence) {
    RequestBook book(4);
    InFlight path, other;
    Tracked a, b, c;
    for (Tracked* request : {&a, &b, &c}) book.submit(*request, Instant{});
    book.sent(a, path);
    book.sent(b, path);
    book.path_failed(path, fence_of(1));
    EXPECT_EQ(book.next(), &c);
    ASSERT_EQ(book.open_fences().size(), 1u);
    const auto sequence = a.sequence;
    book.fenced(book.open_fences()[0]);
    EXPECT_TRUE(book.open_fences().empty());
    EXPECT_EQ(book.next(), &a);
    EXPECT_EQ(a.sequence, sequence);
    book.sent(a, other);
    EXPECT_EQ(book.next(), &b);
    EXPECT_TRUE(answer(book, a.permit, other, 0, Instant{}));
}

TEST(RequestBook, WithoutFencesTheyGoOnAtOnce) {
    RequestBook book(4);
    InFlight path;
    Tracked a, b;
    for (Tracked* request : {&a, &b}) {
        book.submit(*request, Instant{});
        book.sent(*request, path);
    }
    book.path_failed(path, std::nullopt);
    EXPECT_EQ(book.next(), &a);
    EXPECT_TRUE(book.open_fences().empty());
}

TEST(RequestBook, APermitThatWasLeftComesBackWithTheAnswer) {
    RequestBook book(1);
    InFlight path, other;
    Tracked left, next;
    book.submit(left, Instant{});
    book.sent(left, path);
    book.end(left, {ETIMEDOUT, "late", true}, Instant{});
    EXPECT_EQ(left.times_done, 1);
    EXPECT_EQ(left.error, ETIMEDOUT);
    EXPECT_TRUE(book.idle());
    book.submit(next, Instant{});
    EXPECT_EQ(book.next(), nullptr) << "the chunk is still in use";
    EXPECT_EQ(book.in_flight(0, path), nullptr);
    EXPECT_FALSE(book.answered_late(0, other));
    EXPECT_TRUE(book.answered_late(0, path));
    EXPECT_EQ(book.next(), &next);
    EXPECT_FALSE(book.answered_late(0, path));
}

TEST(RequestBook, APermitThatWasLeftOnAFailedPathWaitsForTheDrain) {
    RequestBook book(1);
    InFlight path;
    Tracked left, next;
    book.submit(left, Instant{});
    book.sent(left, path);
    book.end(left, {ETIMEDOUT, "late", true}, Instant{});
    book.path_failed(path, fence_of(1));
    book.submit(next, Instant{});
    ASSERT_EQ(book.open_fences().size(), 1u);
    EXPECT_TRUE(book.open_fences()[0].drain);
    EXPECT_EQ(book.next(), nullptr);
    book.fenced(fence_of(1, true));
    EXPECT_EQ(book.next(), &next);
}

// One of ten takes down every path that it is sent on.
TEST(RequestBook, ARequestThatKillsItsPathsIsGivenUpAndItsCompanionsAreNot) {
    RequestBook book(10);
    std::deque<Tracked> requests(10);
    for (Tracked& request : requests) book.submit(request, Instant{});
    const Request& poison = requests[4];
    std::uint16_t incarnation = 0;
    for (int round = 0; round < 100 && !book.idle(); ++round) {
        InFlight path;
        while (Request* const request = book.next()) book.sent(*request, path);
        // The path dies before anything else is answered, if the poison is on it.
        while (!path.empty() && book.in_flight(poison.permit, path) != &poison)
            ASSERT_TRUE(answer(book, path.front().permit, path, 0, Instant{}));
        book.path_failed(path, fence_of(++incarnation), 6);
        book.fail_exhausted(ECONNABORTED, "", Instant{});
        for (const Fence& fence : book.open_fences()) book.fenced(fence);
    }
    EXPECT_TRUE(book.idle());
    for (Tracked& request : requests)
        EXPECT_EQ(request.error, &request == &poison ? ECONNABORTED : 0);
    EXPECT_EQ(poison.losses, 6u);
    EXPECT_EQ(book.permits().taken(), 0);
}

TEST(RequestBook, APermitOfAnAbandonedRequestWaitsForTheDrain) {
    RequestBook book(1);
    InFlight path;
    Tracked lost, next;
    book.submit(lost, Instant{});
    book.sent(lost, path);
    book.path_failed(path, fence_of(1));
    EXPECT_FALSE(book.open_fences()[0].drain);
    book.fail_waiting(ETIMEDOUT, "no path", Instant{});
    EXPECT_EQ(lost.times_done, 1);
    EXPECT_EQ(lost.error, ETIMEDOUT);
    book.submit(next, Instant{});
    EXPECT_EQ(book.next(), nullptr) << "the chunk may still be in use";
    EXPECT_TRUE(book.open_fences()[0].drain);
    book.fenced(fence_of(1, false));  // The answer to the question without drain.
    EXPECT_EQ(book.next(), nullptr);
    book.fenced(fence_of(1, true));
    EXPECT_EQ(book.next(), &next);
}

// Whose handler forgot it, say: the server would never say that all has ended.
TEST(RequestBook, OthersOfItsPathDoNotWaitForARequestThatIsNeverAnswered) {
    RequestBook book(2);
    InFlight path;
    Tracked forgotten, other;
    for (Tracked* const request : {&forgotten, &other}) {
        book.submit(*request, Instant{});
        book.sent(*request, path);
    }
    book.end(forgotten, {ETIMEDOUT, "", true}, Instant{});
    book.path_failed(path, fence_of(1));
    ASSERT_EQ(book.open_fences().size(), 1u);
    EXPECT_FALSE(book.open_fences()[0].drain);
    book.fenced(fence_of(1, false));
    EXPECT_EQ(book.next(), &other);
    EXPECT_TRUE(book.open_fences()[0].drain) << "the permit of the first waits on";
}

TEST(RequestBook, GivingUpAfterTheFenceStillNeedsTheDrain) {
    RequestBook book(1);
    InFlight path;
    Tracked lost, next;
    book.submit(lost, Instant{});
    book.sent(lost, path);
    book.path_failed(path, fence_of(1));
    book.fenced(fence_of(1));
    book.fail_waiting(ETIMEDOUT, "no path", Instant{});
    book.submit(next, Instant{});
    EXPECT_EQ(book.next(), nullptr);
    ASSERT_EQ(book.open_fences().size(), 1u);
    book.fenced(fence_of(1, true));
    EXPECT_EQ(book.next(), &next);
}

// In flight while its path is given up, towards a server that knows fences and one that does not.
TEST(RequestBook, APermitThatIsCutOffWaitsForTheDrainOfItsPath) {
    for (const bool extended : {true, false}) {
        RequestBook book(1);
        InFlight path;
        Tracked lost, next;
        book.submit(lost, Instant{});
        book.sent(lost, path);
        Outcome outcome{ECANCELED, "its owner went away"};
        if (extended) outcome.fence = fence_of(1);
        book.end(lost, outcome, Instant{});
        EXPECT_EQ(lost.times_done, 1);
        EXPECT_EQ(lost.error, ECANCELED);
        EXPECT_TRUE(book.idle());
        book.path_failed(path, outcome.fence);
        book.submit(next, Instant{});
        EXPECT_EQ(book.next(), extended ? nullptr : &next);
        if (extended) {
            book.fenced(fence_of(1, true));
        }
        EXPECT_EQ(book.next(), &next);
    }
}

TEST(RequestBook, WhatHasEndedIsNotEndedAgain) {
    RequestBook book(1);
    Tracked request;
    book.end(request, {EIO, ""}, Instant{});  // It was never here.
    EXPECT_EQ(request.times_done, 0);
    book.submit(request, Instant{});
    book.end(request, {ECANCELED, ""}, Instant{});
    book.end(request, {EIO, ""}, Instant{});
    EXPECT_EQ(request.times_done, 1);
    EXPECT_EQ(request.error, ECANCELED);
    EXPECT_EQ(book.permits().taken(), 0);
}

// When no path comes back in time, the end of one request has another one given up.
TEST(RequestBook, OneThatIsGivenUpWhileAllAreFailedWaitsForNoPermitAnyMore) {
    struct Ending : Tracked {
        RequestBook* book = nullptr;
        Tracked* other = nullptr;
    };
    RequestBook book(1);
    Tracked holder, other;
    Ending first;
    first.book = &book;
    first.other = &other;
    first.done = [](Request& request) {
        auto& self = static_cast<Ending&>(request);
        ++self.times_done;
        self.book->end(*self.other, {ECANCELED, ""}, Instant{});
    };
    for (Tracked* const request : {&holder, static_cast<Tracked*>(&first), &other})
        book.submit(*request, Instant{});
    EXPECT_EQ(book.permits().waiting(), 2u);
    book.fail_waiting(ETIMEDOUT, "no path", Instant{});
    EXPECT_EQ(other.times_done, 1);
    EXPECT_EQ(other.error, ECANCELED);
    EXPECT_EQ(book.permits().waiting(), 0u);
    EXPECT_TRUE(book.idle());
}

TEST(RequestBook, FailsThoseWithoutAPermitToo) {
    RequestBook book(1);
    Tracked a, b;
    book.submit(a, Instant{});
    book.submit(b, Instant{});
    book.fail_waiting(ETIMEDOUT, "no path", Instant{});
    EXPECT_EQ(a.times_done, 1);
    EXPECT_EQ(b.times_done, 1);
    EXPECT_TRUE(book.idle());
    EXPECT_EQ(book.permits().taken(), 0);
}

// What may still happen on the server, by permit: requests that were sent and neither answered nor
// known to have ended.
class Chaos {
public:
    explicit Chaos(std::uint64_t seed) : random_(seed) {}

    void run() {
        for (int i = 0; i < 3; ++i) {
            paths_.push_back(std::make_unique<Path>());
            paths_.back()->incarnation = ++last_;
        }
        for (int step = 0; step < 2000; ++step) this->step();
        // Heal: every path works, every fence is confirmed.
        for (int step = 0; step < 1000 && !book_.idle(); ++step) {
            confirm();
            send();
            for (auto& path : paths_) answer(*path);
        }
        EXPECT_TRUE(book_.idle());
        for (const Tracked& request : requests_) ASSERT_EQ(request.times_done, 1);
    }

private:
    struct Path {
        std::uint16_t incarnation = 0;
        InFlight inflight;
    };

    void step() {
        Path& path = *paths_[random_.below(paths_.size())];
        switch (random_.below(12)) {
            case 0:
            case 1:
            case 2:
                book_.submit(requests_.emplace_back(), now_);
                break;
            case 3:
                fail(path);
                break;
            case 4:
                confirm();
                break;
            case 5:
                if (random_.chance(0.1)) book_.fail_waiting(ETIMEDOUT, "", now_);
                break;
            case 6:
            case 7:
            case 8:
                answer(path);
                break;
            default:
                send();
        }
        now_ += 1us;
    }

    void send() {
        Request* const request = book_.next();
        if (request == nullptr) return;
        Path& path = *paths_[random_.below(paths_.size())];
        for (const auto& [where, sequence] : alive_[request->permit])
            ASSERT_EQ(sequence, request->sequence) << "an older request may still be at work";
        alive_[request->permit][path.incarnation] = request->sequence;
        book_.sent(*request, path.inflight);
    }
    void answer(Path& path) {
        if (path.inflight.empty()) return;
        const std::uint16_t permit = path.inflight.front().permit;
        alive_[permit].clear();
        EXPECT_TRUE(rtrs::answer(book_, permit, path.inflight, 0, now_));
    }
    void fail(Path& path) {
        const Fence fence = fence_of(path.incarnation);
        book_.path_failed(path.inflight, fence);
        path.incarnation = ++last_;
    }
    void confirm() {
        for (const Fence& fence : book_.open_fences()) {
            if (random_.chance(0.5)) continue;
            dead_.insert(fence.reconnects);
            if (fence.drain)  // Everything that came through dead paths has ended.
                for (auto& [permit, where] : alive_)
                    std::erase_if(where, [&](const auto& at) { return dead_.count(at.first) > 0; });
            book_.fenced(fence);
        }
    }
    Prng random_;
    RequestBook book_{8};
    std::deque<Tracked> requests_;
    std::vector<std::unique_ptr<Path>> paths_;
    std::map<std::uint16_t, std::map<std::uint16_t, std::uint64_t>> alive_;
    std::set<std::uint16_t> dead_;  // Confirmed by the server.
    std::uint16_t last_ = 0;
    Instant now_{};
};

TEST(RequestBook, RandomFailuresLoseAndRepeatNothing) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        Chaos(seed).run();
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace feroce::rtrs
