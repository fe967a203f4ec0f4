#include "device/multicast.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "device/test_qp.hpp"

namespace feroce::device {
namespace {

const Gid kGroup = Gid::from_v4(0xe0000101);
const Gid kOtherGroup = Gid::from_v4(0xe0000102);

std::vector<std::uint32_t> numbers(const MulticastGroups& groups, const Gid& group) {
    std::vector<std::uint32_t> out;
    for (const auto* qp : groups.members(group)) out.push_back(qp->qpn().raw);
    return out;
}

TEST(MulticastGroups, FirstJoinsLastLeaves) {
    QpMaker maker;
    const auto a = maker.make(9), b = maker.make(4);
    MulticastGroups groups;
    EXPECT_TRUE(groups.attach(kGroup, *a).value());
    EXPECT_FALSE(groups.attach(kGroup, *b).value());
    EXPECT_FALSE(groups.attach(kGroup, *a).value()) << "a second time is as once";
    EXPECT_EQ(numbers(groups, kGroup), (std::vector<std::uint32_t>{9, 4}));
    EXPECT_TRUE(groups.members(kOtherGroup).empty());
    EXPECT_FALSE(groups.detach(kGroup, *a).value());
    EXPECT_EQ(numbers(groups, kGroup), std::vector<std::uint32_t>{4});
    EXPECT_TRUE(groups.detach(kGroup, *b).value());
    EXPECT_EQ(groups.size(), 0u);
}

TEST(MulticastGroups, DetachingAStrangerIsTheCallersMistake) {
    QpMaker maker;
    const auto a = maker.make(9), b = maker.make(4);
    MulticastGroups groups;
    EXPECT_EQ(groups.detach(kGroup, *a).error().code, EINVAL);
    ASSERT_TRUE(groups.attach(kGroup, *a).has_value());
    EXPECT_EQ(groups.detach(kGroup, *b).error().code, EINVAL);
    EXPECT_EQ(groups.detach(kOtherGroup, *a).error().code, EINVAL);
    EXPECT_EQ(numbers(groups, kGroup), std::vector<std::uint32_t>{9});
}

TEST(MulticastGroups, RemoveAllNamesTheGroupsLeftEmpty) {
    QpMaker maker;
    const auto a = maker.make(9), b = maker.make(4);
    MulticastGroups groups;
    ASSERT_TRUE(groups.attach(kGroup, *a).has_value());
    ASSERT_TRUE(groups.attach(kGroup, *b).has_value());
    ASSERT_TRUE(groups.attach(kOtherGroup, *a).has_value());
    std::vector<Gid> emptied;
    const auto note = [&](const Gid& group) { emptied.push_back(group); };
    groups.remove_all(*a, note);
    EXPECT_EQ(emptied, std::vector<Gid>{kOtherGroup});
    EXPECT_EQ(numbers(groups, kGroup), std::vector<std::uint32_t>{4});
    groups.remove_all(*a, note);
    EXPECT_EQ(emptied.size(), 1u);
    EXPECT_EQ(groups.size(), 1u);
}

TEST(MulticastGroups, IsBounded) {
    QpMaker maker;
    MulticastGroups groups;
    std::vector<transport::QueuePairPtr> qps;
    for (std::uint32_t i = 0; i <= MulticastGroups::kMembersMax; ++i)
        qps.push_back(maker.make(100 + i));
    for (std::size_t i = 0; i < MulticastGroups::kMembersMax; ++i)
        ASSERT_TRUE(groups.attach(kGroup, *qps[i]).has_value());
    EXPECT_EQ(groups.attach(kGroup, *qps.back()).error().code, ENOMEM);
    EXPECT_FALSE(groups.attach(kGroup, *qps[0]).value()) << "a member already";

    for (std::uint32_t i = 1; i < MulticastGroups::kGroupsMax; ++i)
        ASSERT_TRUE(groups.attach(Gid::from_v4(0xe1000000 + i), *qps[0]).value());
    EXPECT_EQ(groups.attach(kOtherGroup, *qps[0]).error().code, ENOMEM);
}

}  // namespace
}  // namespace feroce::device
