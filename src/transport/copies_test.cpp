// Copies by themselves: what is known of those that are on their way.
#include <gtest/gtest.h>

#include "transport/far_fixture.hpp"

namespace feroce::transport {
namespace {

using far_test::FarEnd;
using far_test::kBase;

class CopiesTest : public testing::Test {
protected:
    void start(mem::CopyDirection direction) {
        end.copies.start(end.qp, group, {{end.far, direction, kBase, group->bytes()}});
    }

    FarEnd end{QpType::Rc, Qpn{0x01'0011}};
    Copies& copies = end.copies;
    CopyGroupPtr group = [] {
        auto made = std::make_shared<CopyGroup>();
        made->staging = mem::heap_staging(8);
        return made;
    }();
};

TEST_F(CopiesTest, KnowWhatIsOnItsWayToMemory) {
    start(mem::CopyDirection::Gather);
    EXPECT_FALSE(copies.delivers_before(copies.next())) << "it comes from memory";
    const mem::CopyToken delivery = copies.next();
    start(mem::CopyDirection::Deliver);
    EXPECT_FALSE(copies.delivers_before(delivery));
    EXPECT_FALSE(copies.delivers_before(end.qp, delivery));
    EXPECT_TRUE(copies.delivers_before(copies.next()));
    EXPECT_TRUE(copies.delivers_before(end.qp, copies.next()));
    EXPECT_EQ(copies.finish(delivery, true), nullptr) << "one of its group is left";
    EXPECT_FALSE(copies.delivers_before(copies.next()));
    EXPECT_FALSE(copies.delivers_before(end.qp, copies.next()));
    EXPECT_EQ(copies.finish(delivery, true), nullptr) << "a copy ends once";
    EXPECT_EQ(copies.finish(delivery - 1, true), &end.qp);
    EXPECT_EQ(copies.size(), 0u);
}

TEST_F(CopiesTest, TellNobodyOfAQueuePairThatIsGone) {
    start(mem::CopyDirection::Deliver);
    EXPECT_TRUE(end.qp.delivers());
    copies.forget(end.qp);
    EXPECT_FALSE(end.qp.delivers());
    EXPECT_FALSE(copies.delivers_before(end.qp, copies.next()));
    EXPECT_TRUE(copies.delivers_before(copies.next())) << "the bytes are still on their way";
    EXPECT_EQ(copies.finish(copies.next() - 1, true), nullptr);
    EXPECT_FALSE(copies.delivers_before(copies.next()));
}

}  // namespace
}  // namespace feroce::transport
