// For tests of keep-alive: a peer that is idle for long, and then gone without a word.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <optional>

#include "sim/abi_world.hpp"
#include "sim/cm_peer.hpp"

namespace feroce::sim {

// Of a connection with `keepalive` 15 s, called by its other end: it lasts while both are idle, and
// ends soon after the crash. What follows DISCONNECTED is left to the caller.
inline void expect_crash_is_noticed(AbiWorld& world, AbiNode& crashes, CmPeer& peer) {
    using namespace std::chrono_literals;
    EXPECT_FALSE(peer.event(120s).has_value()) << "idle and alive";
    crashes.crash();
    const Instant crashed = world.now();
    const std::optional<CmNews> news = peer.event(60s);
    ASSERT_TRUE(news.has_value());
    EXPECT_EQ(news->type, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(news->status, -ETIMEDOUT);
    EXPECT_LT(world.now() - crashed, 20s);
}

}  // namespace feroce::sim
