#include "device/timers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "device/test_qp.hpp"

namespace feroce::device {
namespace {

Instant at(std::int64_t ns) {
    return Instant(Duration(ns));
}

class TimersTest : public ::testing::Test {
protected:
    transport::QueuePair& qp(std::size_t i) {
        while (qps_.size() <= i)
            qps_.push_back(maker_.make(static_cast<std::uint32_t>(0x10000 + qps_.size())));
        return *qps_[i];
    }

private:
    QpMaker maker_;
    std::vector<transport::QueuePairPtr> qps_;
};

TEST_F(TimersTest, FiresInOrderAndNotBefore) {
    Timers timers(8);
    timers.update(qp(0), at(30));
    timers.update(qp(1), at(10));
    timers.update(qp(2), at(20));
    EXPECT_EQ(timers.next(), at(10));
    EXPECT_EQ(timers.pop_due(at(9)), nullptr);
    EXPECT_EQ(timers.pop_due(at(20)), &qp(1));
    EXPECT_EQ(timers.pop_due(at(20)), &qp(2));
    EXPECT_EQ(timers.pop_due(at(20)), nullptr);
    EXPECT_EQ(timers.next(), at(30));
    EXPECT_EQ(qp(1).device().timer_position, 0u);
}

TEST_F(TimersTest, LaterIsLazyEarlierIsNot) {
    Timers timers(8);
    timers.update(qp(0), at(30));
    timers.update(qp(0), at(50));
    EXPECT_EQ(timers.next(), at(30)) << "checked when it fires";
    timers.update(qp(0), at(5));
    EXPECT_EQ(timers.next(), at(5));
    EXPECT_EQ(timers.size(), 1u);
    EXPECT_EQ(timers.pop_due(at(5)), &qp(0));
    timers.update(qp(0), kNever);
    EXPECT_EQ(timers.size(), 0u);
    EXPECT_EQ(timers.next(), kNever);
    EXPECT_EQ(timers.pop_due(kNever), nullptr);
}

TEST_F(TimersTest, WhoWaitsForNothingHasNoEntry) {
    Timers timers(8);
    timers.update(qp(0), at(10));
    timers.update(qp(1), at(20));
    timers.update(qp(0), kNever);
    EXPECT_EQ(timers.size(), 1u);
    EXPECT_EQ(timers.next(), at(20));
}

TEST_F(TimersTest, RemoveForgetsAndIsIdempotent) {
    Timers timers(8);
    timers.update(qp(0), at(10));
    timers.update(qp(1), at(20));
    timers.remove(qp(0));
    timers.remove(qp(0));
    EXPECT_EQ(timers.pop_due(at(100)), &qp(1));
    EXPECT_EQ(timers.pop_due(at(100)), nullptr);
}

// Against a model that is only a list: entry i is the earliest deadline given since it was empty.
TEST_F(TimersTest, AgreesWithAListUnderRandomCalls) {
    constexpr std::size_t kQps = 37;
    Prng random(2024);
    Timers timers(kQps);
    std::vector<Instant> model(kQps, kNever);
    for (int step = 0; step < 50'000; ++step) {
        const std::size_t i = random.below(kQps);
        const Instant when = at(static_cast<std::int64_t>(random.below(1000)));
        switch (random.below(4)) {
            case 0:
            case 1:
                timers.update(qp(i), when);
                model[i] = std::min(model[i], when);
                break;
            case 2:
                timers.remove(qp(i));
                model[i] = kNever;
                break;
            default: {
                const Instant earliest = *std::min_element(model.begin(), model.end());
                ASSERT_EQ(timers.next(), earliest);
                transport::QueuePair* due = timers.pop_due(when);
                ASSERT_EQ(due != nullptr, earliest <= when);
                if (due == nullptr) break;
                Instant& entry = model[due->qpn().raw - 0x10000];
                ASSERT_EQ(entry, earliest);
                entry = kNever;
            }
        }
        ASSERT_EQ(qp(i).device().timer_position != 0, model[i] != kNever);
    }
}

}  // namespace
}  // namespace feroce::device
