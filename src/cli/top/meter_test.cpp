#include "cli/top/meter.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace feroce::cli::meter_test {
namespace {

using std::chrono::seconds;
using OneMeter = Meter<int, 1>;

double rate(OneMeter& meter, int key, std::uint64_t count) {
    const auto rates = meter.take(key, {count});
    return rates ? (*rates)[0] : -1;
}

TEST(Meter, KnowsNoRateAtTheFirstLook) {
    OneMeter meter;
    meter.begin(seconds(10));
    EXPECT_EQ(rate(meter, 1, 100), -1);
    meter.begin(seconds(12));
    EXPECT_EQ(rate(meter, 1, 150), 25);
    meter.begin(seconds(13));
    EXPECT_EQ(rate(meter, 1, 150), 0);
}

TEST(Meter, CountsOneThatBeganSinceTheLastLookFromZero) {
    OneMeter meter;
    meter.begin(seconds(10));
    meter.begin(seconds(12));
    EXPECT_EQ(rate(meter, 1, 40), 20);
}

TEST(Meter, TakesCountersThatFellForThoseOfAnother) {
    Meter<int, 2> meter;
    meter.begin(seconds(0));
    meter.take(1, {1'000, 5});
    meter.begin(seconds(1));
    // The second has grown, but belongs to the same newcomer.
    const auto rates = meter.take(1, {30, 7});
    ASSERT_TRUE(rates);
    EXPECT_EQ((*rates)[0], 30);
    EXPECT_EQ((*rates)[1], 7);
}

TEST(Meter, ForgetsWhatOneLookDidNotSee) {
    OneMeter meter;
    meter.begin(seconds(0));
    rate(meter, 1, 1'000);
    meter.begin(seconds(1));
    meter.begin(seconds(3));
    EXPECT_EQ(rate(meter, 1, 1'010), 505) << "another one, which began since";
}

TEST(Meter, MeasuresOneThatDidNotAnswerOverTheWholeTime) {
    OneMeter meter;
    meter.begin(seconds(0));
    rate(meter, 1, 100);
    meter.begin(seconds(1));
    EXPECT_FALSE(meter.take(1, {100}, false));
    meter.begin(seconds(4));
    EXPECT_EQ(rate(meter, 1, 180), 20);
}

TEST(Meter, KnowsNoRateOfOneThatNeverAnsweredBefore) {
    OneMeter meter;
    meter.begin(seconds(0));
    meter.begin(seconds(1));
    EXPECT_FALSE(meter.take(1, {5'000}, false));
    meter.begin(seconds(2));
    EXPECT_EQ(rate(meter, 1, 5'000), -1) << "nobody knows when it counted that";
    meter.begin(seconds(3));
    EXPECT_EQ(rate(meter, 1, 5'007), 7);
}

TEST(Meter, DividesByNoTime) {
    OneMeter meter;
    meter.begin(seconds(1));
    rate(meter, 1, 1);
    meter.begin(seconds(1));
    EXPECT_EQ(rate(meter, 1, 2), -1);
}

}  // namespace
}  // namespace feroce::cli::meter_test
