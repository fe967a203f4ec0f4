// The memory of a client's session: slots that do not overlap, and regions that are found again
// only as long as their areas are there.
#include "rtrs/session_memory.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "feroce/device.hpp"
#include "feroce/memory.hpp"

namespace feroce::rtrs::session_memory_test {
namespace {

constexpr Geometry kGeometry{.queue_depth = 5, .max_io_size = 4096, .max_header_size = 512};

TEST(SessionMemory, SlotsHoldWhatTheyAreForAndDoNotOverlap) {
    SessionMemory memory(kGeometry, *std::pmr::get_default_resource());
    const ByteSpan all = memory.area(memory.headers());
    for (const std::size_t size :
         {std::size_t{20}, std::size_t{128}, std::size_t{129}, std::size_t{512}}) {
        std::set<const std::byte*> bytes;
        for (std::uint16_t permit = 0; permit < kGeometry.queue_depth; ++permit) {
            const ByteSpan slot = memory.header_slot(permit, size);
            ASSERT_GE(slot.size(), size);
            ASSERT_GE(slot.data(), all.data());
            ASSERT_LE(slot.data() + slot.size(), all.data() + all.size());
            for (const std::byte& byte : slot) bytes.insert(&byte);
        }
        EXPECT_GE(bytes.size(), kGeometry.queue_depth * size) << size;
    }
    EXPECT_LT(memory.header_slot(1, 20).data() - memory.header_slot(0, 20).data(), 512)
        << "short ones share pages";
}

class Areas : public testing::Test {
protected:
    rdma::Device device = rdma::Device::open("127.0.0.1").value();
    rdma::ProtectionDomain domain = rdma::ProtectionDomain::create(device.raw()).value();
    SessionMemory memory{kGeometry, *std::pmr::get_default_resource()};
    RegisteredAreas areas{memory, domain.raw()};
    std::vector<std::byte> bytes = std::vector<std::byte>(3 * 4096);
};

TEST_F(Areas, AreFoundByAnyPartOfThem) {
    EXPECT_EQ(areas.region_of(bytes), nullptr) << "nobody has added it";
    const ByteSpan area = ByteSpan(bytes).first(8192);
    memory.add(area);
    const ibv_mr* const region = areas.region_of(area);
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(region->addr, area.data());
    for (int twice = 0; twice < 2; ++twice) {
        EXPECT_EQ(areas.region_of(area.subspan(100, 10)), region);
        EXPECT_EQ(areas.region_of(area.last(1)), region);
        EXPECT_EQ(areas.region_of(ByteSpan(bytes).subspan(100, 8192)), nullptr) << "beyond its end";
        EXPECT_EQ(areas.region_of(ByteSpan(bytes).subspan(8192, 1)), nullptr);
    }
}

TEST_F(Areas, AreNotFoundWhenTheyAreGone) {
    const AreaId whole = memory.add(bytes);
    const ibv_mr* const before = areas.region_of(bytes);
    ASSERT_NE(before, nullptr);
    EXPECT_EQ(areas.region_of(ByteSpan(bytes).last(4096)), before);
    areas.forget(whole);
    memory.remove(whole);
    EXPECT_EQ(areas.region_of(bytes), nullptr);
    // Another one at the same place.
    const AreaId half = memory.add(ByteSpan(bytes).first(4096));
    const ibv_mr* const after = areas.region_of(ByteSpan(bytes).first(4096));
    ASSERT_NE(after, nullptr);
    EXPECT_EQ(after->length, 4096U);
    EXPECT_EQ(areas.region_of(ByteSpan(bytes).last(4096)), nullptr);
    areas.forget(half);
    areas.forget(half);
}

}  // namespace
}  // namespace feroce::rtrs::session_memory_test
