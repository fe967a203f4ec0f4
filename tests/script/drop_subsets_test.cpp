// Exhaustive: an exchange of twelve packets, with each of the 4096 subsets of them lost; and one
// with each of its first six lost, duplicated, delayed or none of it. Either end keeps what follows
// a gap, or goes back. However the protocol recovers, in the end memory is equal and every request
// completed once, in order. With sanitizers, which take ten times as long, each fifth of them.
#include <gtest/gtest.h>

#include <cstring>

#include "base/sanitizers.hpp"
#include "script/two_nodes.hpp"
#include "sim/check/pattern.hpp"

namespace feroce::script {
namespace {

using sim::Pattern;
using transport::QueuePair;
using transport::ReceiveWr;
using transport::SendOp;
using transport::SendWr;
using transport::WcOpcode;
using transport::WcStatus;

#if defined(FEROCE_ASAN) || defined(FEROCE_TSAN)
constexpr std::uint32_t kStep = 5;  // Has no factor with 4096: all fates of each packet occur.
#else
constexpr std::uint32_t kStep = 1;
#endif
constexpr std::uint32_t kMtu = 256;
constexpr std::uint64_t kTarget = 16384;  // Where the peer's or the local target half begins.

SendWr request(std::uint64_t id, SendOp op, std::uint64_t remote_address = 0) {
    SendWr wr;
    wr.wr_id = id;
    wr.op = op;
    wr.remote_address = remote_address;
    return wr;
}

struct Exchange {
    QueuePair* a = nullptr;
    QueuePair* b = nullptr;
};

struct Ends {
    const char* name;
    bool a_keeps;
    bool b_keeps;
};

device::Engine::Config engine_of(bool keeps) {
    device::Engine::Config config;
    config.held_bytes_max = keeps ? 8 << 20 : 0;
    return config;
}

class DropSubsets : public ::testing::TestWithParam<Ends> {
protected:
    DropSubsets()
        : nodes_([](const sim::FramePtr& frame) { return frame; }, engine_of(GetParam().a_keeps),
                 engine_of(GetParam().b_keeps)) {
        nodes_.set_fates([this] { return next_fate(); });
    }

    Wire::Fate next_fate() {
        const std::uint32_t number = packets_++;
        if (four_fates_)
            return number >= 6 ? Wire::Fate::Arrives : Wire::Fate(lost_ >> 2 * number & 3);
        return number >= 12 || (lost_ >> number & 1) == 0 ? Wire::Fate::Arrives
                                                          : Wire::Fate::IsLost;
    }
    Exchange open() {
        Exchange e{&nodes_.a.create_qp(), &nodes_.b.create_qp()};
        sim::ConnectOptions options;
        options.path_mtu = kMtu;
        options.timeout = 6;  // 262 us.
        sim::connect({nodes_.a.node, *e.a, Psn(0xff'fffa)}, {nodes_.b.node, *e.b, Psn(100)},
                     options);
        return e;
    }
    void close(const Exchange& e) {
        nodes_.a.destroy_qp(*e.a);
        nodes_.b.destroy_qp(*e.b);
    }
    void post(const Exchange& e, SendWr wr, const mem::Sge& sge) {
        wr.signaled = true;
        wr.rkey = nodes_.b.keys.rkey;
        wr.sges = {&sge, 1};
        const auto posted = nodes_.a.node.engine(0).post_send(nodes_.scheduler.now(), *e.a, wr);
        ASSERT_TRUE(posted.has_value()) << posted.error().why;
    }
    void receive(const Exchange& e, std::uint64_t wr_id, const mem::Sge& sge) {
        const ReceiveWr wr{wr_id, {&sge, 1}};
        const auto posted = nodes_.b.node.engine(0).post_receive(nodes_.scheduler.now(), *e.b, wr);
        ASSERT_TRUE(posted.has_value()) << posted.error().why;
    }
    // Good ones, numbered from 0, and no others.
    void expect_completions(Party& party, std::uint32_t count, WcOpcode opcode) {
        const auto polled = party.poll();
        ASSERT_EQ(polled.size(), count) << "lost packets: " << lost_;
        for (std::uint32_t i = 0; i < count; ++i) {
            ASSERT_EQ(polled[i].wr_id, i) << "lost packets: " << lost_;
            ASSERT_EQ(polled[i].status, WcStatus::Success) << "lost packets: " << lost_;
            ASSERT_EQ(polled[i].opcode, opcode) << "lost packets: " << lost_;
        }
    }
    void run() {
        nodes_.a.node.wake();
        nodes_.scheduler.run_until(nodes_.scheduler.now() + std::chrono::milliseconds(200));
    }
    template <class Body>
    void for_all_subsets(Body body) {
        for (const bool four_fates : {false, true}) {
            four_fates_ = four_fates;
            for_all_fates(body);
            if (HasFatalFailure()) return;
        }
    }
    template <class Body>
    void for_all_fates(Body body) {
        for (lost_ = 0; lost_ < 4096; lost_ += kStep) {
            packets_ = 0;
            const Exchange e = open();
            body(e);
            if (HasFatalFailure()) return;
            if (lost_ == 0) {
                EXPECT_EQ(packets_, 12U) << "the undisturbed exchange";
            }
            close(e);
        }
    }

    TwoNodes nodes_;
    bool four_fates_ = false;
    // Bit n: packet n of the exchange is lost; with four fates two bits each.
    std::uint32_t lost_ = 0;
    std::uint32_t packets_ = 0;  // Sent so far, by both.
};

TEST_P(DropSubsets, Write) {
    constexpr std::uint32_t kBytes = kMtu * 10 + 17;  // Eleven packets and an acknowledgement.
    for_all_subsets([&](const Exchange& e) {
        const Pattern pattern{lost_ + 1, 0};
        pattern.fill(nodes_.a.bytes(1, kBytes));
        post(e, request(0, SendOp::Write, nodes_.b.iova(kTarget + 3)), nodes_.a.sge(1, kBytes));
        run();
        expect_completions(nodes_.a, 1, WcOpcode::Write);
        ASSERT_EQ(pattern.mismatch(nodes_.b.bytes(kTarget + 3, kBytes)), kBytes) << lost_;
    });
}

TEST_P(DropSubsets, Send) {
    // Five and six packets, and one acknowledgement for both.
    constexpr std::uint32_t kBytes[] = {kMtu * 4 + 5, kMtu * 6};
    for_all_subsets([&](const Exchange& e) {
        for (std::uint64_t i = 0; i < 2; ++i) {
            receive(e, i, nodes_.b.sge(kTarget + i * 4096, kBytes[i]));
            Pattern{lost_ * 2 + i + 1, 0}.fill(nodes_.a.bytes(i * 4096, kBytes[i]));
            post(e, request(i, SendOp::Send), nodes_.a.sge(i * 4096, kBytes[i]));
        }
        run();
        expect_completions(nodes_.a, 2, WcOpcode::Send);
        expect_completions(nodes_.b, 2, WcOpcode::Receive);
        for (std::uint64_t i = 0; i < 2; ++i) {
            const Pattern pattern{lost_ * 2 + i + 1, 0};
            ASSERT_EQ(pattern.mismatch(nodes_.b.bytes(kTarget + i * 4096, kBytes[i])), kBytes[i])
                << lost_;
        }
    });
}

TEST_P(DropSubsets, Read) {
    constexpr std::uint32_t kBytes = kMtu * 2 + 100;  // A request and three responses each.
    for_all_subsets([&](const Exchange& e) {
        for (std::uint64_t i = 0; i < 3; ++i) {
            Pattern{lost_ * 3 + i + 1, 0}.fill(nodes_.b.bytes(i * 1024, kBytes));
            post(e, request(i, SendOp::Read, nodes_.b.iova(i * 1024)),
                 nodes_.a.sge(kTarget + i * 1024, kBytes));
        }
        run();
        expect_completions(nodes_.a, 3, WcOpcode::Read);
        for (std::uint64_t i = 0; i < 3; ++i) {
            const Pattern pattern{lost_ * 3 + i + 1, 0};
            ASSERT_EQ(pattern.mismatch(nodes_.a.bytes(kTarget + i * 1024, kBytes)), kBytes)
                << lost_;
        }
    });
}

TEST_P(DropSubsets, FetchAdd) {
    for_all_subsets([&](const Exchange& e) {
        std::uint64_t value = 1000 * lost_;
        std::memcpy(nodes_.b.bytes(kTarget, 8).data(), &value, 8);
        for (std::uint64_t i = 0; i < 6; ++i) {
            SendWr wr = request(i, SendOp::FetchAdd, nodes_.b.iova(kTarget));
            wr.compare_add = 1 + i;
            post(e, wr, nodes_.a.sge(i * 8, 8));
        }
        run();
        expect_completions(nodes_.a, 6, WcOpcode::FetchAdd);
        for (std::uint64_t i = 0; i < 6; ++i) {
            std::uint64_t original = 0;
            std::memcpy(&original, nodes_.a.bytes(i * 8, 8).data(), 8);
            ASSERT_EQ(original, value) << "addition " << i << ", lost packets: " << lost_;
            value += 1 + i;
        }
        std::uint64_t sum = 0;
        std::memcpy(&sum, nodes_.b.bytes(kTarget, 8).data(), 8);
        ASSERT_EQ(sum, value) << "lost packets: " << lost_;
    });
}

TEST_P(DropSubsets, CompareSwap) {
    for_all_subsets([&](const Exchange& e) {
        std::memset(nodes_.b.bytes(kTarget, 8).data(), 0, 8);
        for (std::uint64_t i = 0; i < 6; ++i) {
            SendWr wr = request(i, SendOp::CompareSwap, nodes_.b.iova(kTarget));
            wr.compare_add = i;
            wr.swap = i + 1;
            post(e, wr, nodes_.a.sge(i * 8, 8));
        }
        run();
        expect_completions(nodes_.a, 6, WcOpcode::CompareSwap);
        for (std::uint64_t i = 0; i < 6; ++i) {
            std::uint64_t original = 0;
            std::memcpy(&original, nodes_.a.bytes(i * 8, 8).data(), 8);
            ASSERT_EQ(original, i) << "lost packets: " << lost_;
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Kinds, DropSubsets,
                         ::testing::Values(Ends{"BothGoBack", false, false},
                                           Ends{"BothKeep", true, true},
                                           Ends{"OnlyTheRequesterRepairs", true, false},
                                           Ends{"OnlyTheResponderKeeps", false, true}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace feroce::script
