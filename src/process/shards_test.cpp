// How many shards a process has: one, and more for completion queues of their own.
#include <gtest/gtest.h>

#include "process/process.hpp"
#include "process/silent_host.hpp"

namespace feroce::process {
namespace shards_test {

class CrowdedHost final : public SilentHost {
public:
    bool has_ports_to_spare() override { return false; }
};

TEST(ShardCount, OneUntilMoreCompletionQueuesCome) {
    SilentEvents events;
    Process process(std::make_unique<SilentHost>(), events, {.shards_max = 3});
    ASSERT_TRUE(process.open().has_value());
    EXPECT_EQ(process.shard_count(), 1u);
    EXPECT_EQ(process.pick_shard(0), 0u);
    EXPECT_EQ(process.shard_count(), 1u);
    EXPECT_EQ(process.pick_shard(1 << 0), 0u) << "the queue's own";
    EXPECT_EQ(process.pick_shard(0), 1u);
    EXPECT_EQ(process.pick_shard(1 << 1), 1u);
    EXPECT_EQ(process.pick_shard(0), 2u);
    EXPECT_EQ(process.shard_count(), 3u);
    EXPECT_EQ(process.pick_shard(0), 0u) << "no more of them";
    EXPECT_EQ(process.shard_count(), 3u);
    process.close();
    EXPECT_EQ(process.shard_count(), 0u);
    ASSERT_TRUE(process.open().has_value());
    EXPECT_EQ(process.shard_count(), 1u);
    process.close();
}

TEST(ShardCount, OneWherePortsAreScarce) {
    SilentEvents events;
    Process process(std::make_unique<CrowdedHost>(), events, {.shards_max = 3});
    ASSERT_TRUE(process.open().has_value());
    for (int i = 0; i < 5; ++i) EXPECT_EQ(process.pick_shard(0), 0u);
    EXPECT_EQ(process.shard_count(), 1u);
    process.close();
}

TEST(ShardCount, AllFromTheStartIfToldSo) {
    SilentEvents events;
    Process process(std::make_unique<SilentHost>(), events, {.shards = 2});
    ASSERT_TRUE(process.open().has_value());
    EXPECT_EQ(process.shard_count(), 2u);
    EXPECT_EQ(process.pick_shard(1), 0u);
    EXPECT_EQ(process.pick_shard(1), 1u) << "in turns, whatever the queue has";
    EXPECT_EQ(process.pick_shard(1), 0u);
    process.close();
}

}  // namespace shards_test
}  // namespace feroce::process
