#include "device/xrc.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>

namespace feroce::device {
namespace {

struct NullSink final : transport::CompletionSink {
    bool push(const transport::Completion&) override { return true; }
};

TEST(XrcDomains, FindsByNumberAndDomain) {
    XrcDomains xrc;
    NullSink cq_a, cq_b;
    transport::ReceiveQueue a(PdId{1}, 4, 1), b(PdId{1}, 4, 1);
    const std::uint32_t one = xrc.create(), two = xrc.create();
    EXPECT_NE(one, 0u);
    EXPECT_NE(one, two);
    const SrqNumber na = xrc.register_srq(a, one, cq_a).value();
    const SrqNumber nb = xrc.register_srq(b, two, cq_b).value();
    EXPECT_NE(na, nb);
    EXPECT_NE(na.raw, 0u);
    EXPECT_EQ(xrc.find(na, one).queue, &a);
    EXPECT_EQ(xrc.find(na, one).cq, &cq_a);
    EXPECT_EQ(xrc.find(nb, two).queue, &b);
    EXPECT_EQ(xrc.find(na, two).queue, nullptr) << "another domain's";
    EXPECT_EQ(xrc.find(na, two).cq, nullptr);
    xrc.unregister_srq(na);
    EXPECT_EQ(xrc.find(na, one).queue, nullptr);
}

TEST(XrcDomains, ADomainGoesAfterItsQueues) {
    XrcDomains xrc;
    NullSink cq;
    transport::ReceiveQueue queue(PdId{1}, 4, 1);
    const std::uint32_t domain = xrc.create();
    const SrqNumber number = xrc.register_srq(queue, domain, cq).value();
    EXPECT_EQ(xrc.destroy(domain).error().code, EBUSY);
    EXPECT_EQ(xrc.find(number, domain).queue, &queue);
    xrc.unregister_srq(number);
    EXPECT_TRUE(xrc.destroy(domain).has_value());
    EXPECT_EQ(xrc.destroy(domain).error().code, EINVAL);
    EXPECT_EQ(xrc.register_srq(queue, domain, cq).error().code, EINVAL);
}

TEST(XrcDomains, ANumberIsNotSoonUsedAgain) {
    XrcDomains xrc;
    NullSink cq;
    transport::ReceiveQueue queue(PdId{1}, 4, 1);
    const std::uint32_t domain = xrc.create();
    const SrqNumber first = xrc.register_srq(queue, domain, cq).value();
    xrc.unregister_srq(first);
    EXPECT_NE(xrc.register_srq(queue, domain, cq).value(), first);
}

TEST(XrcDomains, LookupsGoOnWhileOthersComeAndGo) {
    XrcDomains xrc;
    NullSink cq;
    transport::ReceiveQueue queue(PdId{1}, 4, 1), passing(PdId{1}, 4, 1);
    const std::uint32_t domain = xrc.create();
    const SrqNumber number = xrc.register_srq(queue, domain, cq).value();
    std::atomic<bool> done{false};
    std::thread changer([&] {
        for (int i = 0; i < 5000; ++i)
            xrc.unregister_srq(xrc.register_srq(passing, domain, cq).value());
        done = true;
    });
    std::uint64_t misses = 0;
    do {
        misses += xrc.find(number, domain).queue == &queue ? 0 : 1;
    } while (!done);
    changer.join();
    EXPECT_EQ(misses, 0u);
}

}  // namespace
}  // namespace feroce::device
