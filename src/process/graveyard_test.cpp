#include "process/graveyard.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace feroce::process {
namespace {

struct Counted {
    explicit Counted(int& alive) : alive_(alive) { ++alive_; }
    ~Counted() { --alive_; }
    int& alive_;
};
struct Other : Counted {
    using Counted::Counted;
};

TEST(Graveyard, KeepsTheLastFewOfEachTypeAndThenFreesThem) {
    int counted = 0, others = 0;
    {
        Graveyard<Counted, Other> yard;
        yard.bury(*new Other(others));
        for (std::uint32_t i = 0; i < 3 * yard.kGraves; ++i) yard.bury(*new Counted(counted));
        EXPECT_EQ(counted, int{yard.kGraves});
        EXPECT_EQ(others, 1) << "the other type has graves of its own";
    }
    EXPECT_EQ(counted, 0);
    EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace feroce::process
