#include "device/send_windows.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/test_qp.hpp"

namespace feroce::device::send_windows_test {
namespace {

constexpr Instant kNow = Instant(Duration(1'000'000'000));
constexpr transport::SendWindow::Limits kLimits{4096, 4096, 64 * 1024, 8192};
const Gid kPeer = Gid::from_v4(0x0a000001);
const Gid kOther = Gid::from_v4(0x0a000002);

class WindowsTest : public ::testing::Test {
protected:
    transport::QueuePair& new_qp(const Gid& peer, std::uint32_t destination_qpn) {
        auto& qp = *qps_.emplace_back(maker_.make(next_qpn_++));
        qp.set_window(&windows_.acquire(peer, Qpn{destination_qpn}));
        return qp;
    }
    static void fill(transport::SendWindow& window) { window.on_sent(kNow, 1 << 20); }
    static void empty(transport::SendWindow& window) { window.on_forgotten(window.in_flight()); }
    std::vector<transport::QueuePair*> wake() {
        std::vector<transport::QueuePair*> woken;
        windows_.wake(later_,
                      [&](transport::QueuePair& qp, std::uint32_t) { woken.push_back(&qp); });
        return woken;
    }

    Windows windows_{kLimits};
    // Long after anything was sent, so that pacing is over.
    Instant later_ = kNow + std::chrono::seconds(100);

private:
    QpMaker maker_;
    std::uint32_t next_qpn_ = 0x10000;
    std::vector<transport::QueuePairPtr> qps_;
};

using Woken = std::vector<transport::QueuePair*>;

TEST_F(WindowsTest, OneForEachDestinationShard) {
    auto& a = windows_.acquire(kPeer, Qpn{0x01'0007});
    EXPECT_EQ(&windows_.acquire(kPeer, Qpn{0x01'0008}), &a);
    EXPECT_NE(&windows_.acquire(kPeer, Qpn{0x02'0007}), &a);
    EXPECT_NE(&windows_.acquire(kOther, Qpn{0x01'0007}), &a);
    EXPECT_EQ(windows_.size(), 3u);
}

TEST_F(WindowsTest, LivesAsLongAsItIsHeld) {
    auto& window = windows_.acquire(kPeer, Qpn{0x01'0007});
    windows_.acquire(kPeer, Qpn{0x01'0008});
    window.on_sent(kNow, 1000);
    windows_.release(window);
    EXPECT_EQ(windows_.acquire(kPeer, Qpn{0x01'0009}).in_flight(), 1000u);
    windows_.release(window);
    windows_.release(window);
    EXPECT_EQ(windows_.size(), 0u);
    EXPECT_EQ(windows_.acquire(kPeer, Qpn{0x01'0007}).in_flight(), 0u) << "forgotten";
}

TEST_F(WindowsTest, WakesInOrderOnlyWhereTheWindowIsOpen) {
    auto& a = new_qp(kPeer, 0x01'0007);
    auto& b = new_qp(kPeer, 0x01'0008);
    auto& c = new_qp(kOther, 0x01'0007);
    fill(*a.window());
    fill(*c.window());
    windows_.add_waiter(b);
    windows_.add_waiter(a);
    windows_.add_waiter(b);
    windows_.add_waiter(c);
    EXPECT_TRUE(b.device().waits_for_window);
    EXPECT_EQ(wake(), Woken{});
    EXPECT_TRUE(windows_.has_waiters());

    empty(*a.window());
    EXPECT_EQ(wake(), (Woken{&b, &a}));
    EXPECT_FALSE(a.device().waits_for_window);
    EXPECT_TRUE(c.device().waits_for_window);
    EXPECT_EQ(wake(), Woken{}) << "each once";

    empty(*c.window());
    EXPECT_EQ(wake(), Woken{&c});
    EXPECT_FALSE(windows_.has_waiters());
}

TEST_F(WindowsTest, StopsWhenTheWokenOneFillsTheWindow) {
    auto& a = new_qp(kPeer, 0x01'0007);
    auto& b = new_qp(kPeer, 0x01'0008);
    windows_.add_waiter(a);
    windows_.add_waiter(b);
    Woken woken;
    const auto send_all = [&](transport::QueuePair& qp, std::uint32_t) {
        woken.push_back(&qp);
        fill(*qp.window());
        windows_.add_waiter(qp);  // It has more to send.
    };
    windows_.wake(later_, send_all);
    EXPECT_EQ(woken, Woken{&a});
    empty(*a.window());
    windows_.wake(later_, send_all);
    EXPECT_EQ(woken, (Woken{&a, &b})) << "whoever sent last waits longest";
    empty(*a.window());
    EXPECT_EQ(wake(), (Woken{&a, &b}));
}

// A turn that the window has interrupted goes on first, and only one is interrupted at a time.
TEST_F(WindowsTest, ATurnGoesOnBeforeOthersBegin) {
    auto& a = new_qp(kPeer, 0x01'0007);
    auto& b = new_qp(kPeer, 0x01'0008);
    auto& c = new_qp(kPeer, 0x01'0009);
    fill(*a.window());
    windows_.add_waiter(a);
    windows_.add_first(b, 5);
    windows_.add_first(b, 7);
    windows_.add_first(c, 9);
    empty(*a.window());
    std::vector<std::pair<transport::QueuePair*, std::uint32_t>> woken;
    windows_.wake(later_, [&](transport::QueuePair& qp, std::uint32_t left) {
        woken.emplace_back(&qp, left);
        if (woken.size() == 1) windows_.add_first(qp, 2);
    });
    EXPECT_EQ(woken, (decltype(woken){{&b, 5}, {&b, 2}, {&a, 0}}));
    EXPECT_EQ(wake(), Woken{&c});
    windows_.add_first(b, 1);
    windows_.remove_waiter(b);
    EXPECT_FALSE(windows_.has_waiters());
    EXPECT_EQ(wake(), Woken{});
}

// Its machine says that it need not wait for the window any more.
TEST_F(WindowsTest, ByARingOneThatRunsAheadIsWoken) {
    auto& a = new_qp(kPeer, 0x01'0007);
    a.window()->set_by_ring(true);
    a.window()->on_sent(kNow, kLimits.ring_bytes);
    windows_.add_waiter(a);
    EXPECT_EQ(windows_.next_pacing(later_), later_);
    EXPECT_EQ(wake(), Woken{&a});
    a.window()->on_sent(kNow, kLimits.bytes_max);
    windows_.add_waiter(a);
    EXPECT_EQ(windows_.next_pacing(later_), kNever);
    EXPECT_EQ(wake(), Woken{});
    windows_.remove_waiter(a);
}

TEST_F(WindowsTest, AWokenOneThatWaitsAgainIsNotWokenTwice) {
    auto& a = new_qp(kPeer, 0x01'0007);
    windows_.add_waiter(a);
    int calls = 0;
    windows_.wake(later_, [&](transport::QueuePair& qp, std::uint32_t) {
        ++calls;
        windows_.add_waiter(qp);
    });
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(wake(), Woken{&a});
}

TEST_F(WindowsTest, ManyWaitersOnManyWindows) {
    constexpr std::uint32_t kQps = 300;
    Woken all;
    for (std::uint32_t i = 0; i < kQps; ++i) all.push_back(&new_qp(kPeer, i % 3 << 16 | i));
    for (int round = 0; round < 3; ++round) {
        for (auto* qp : all) windows_.add_waiter(*qp);
        Woken woken = wake();
        std::sort(woken.begin(), woken.end(),
                  [](auto* x, auto* y) { return x->qpn().raw < y->qpn().raw; });
        EXPECT_EQ(woken, all);
    }
}

TEST_F(WindowsTest, RemovedWaiterIsForgottenAndItsWindowCanGo) {
    auto& a = new_qp(kPeer, 0x01'0007);
    auto& b = new_qp(kPeer, 0x01'0008);
    auto& c = new_qp(kPeer, 0x01'0009);
    for (auto* qp : {&a, &b, &c}) windows_.add_waiter(*qp);
    windows_.remove_waiter(b);
    windows_.remove_waiter(b);
    EXPECT_EQ(wake(), (Woken{&a, &c}));
    windows_.add_waiter(c);
    windows_.remove_waiter(c);
    EXPECT_FALSE(windows_.has_waiters());
    for (auto* qp : {&a, &b, &c}) windows_.release(*qp->window());
    EXPECT_EQ(windows_.size(), 0u);
}

TEST_F(WindowsTest, PacingIsThatOfWindowsWithWaiters) {
    auto& a = new_qp(kPeer, 0x01'0007);
    auto& b = new_qp(kOther, 0x01'0008);
    fill(*a.window());
    EXPECT_EQ(windows_.next_pacing(kNow), kNever) << "nobody waits";
    windows_.add_waiter(a);
    EXPECT_EQ(windows_.next_pacing(kNow), a.window()->blocked_until(kNow));
    windows_.add_waiter(b);
    EXPECT_EQ(windows_.next_pacing(kNow),
              std::min(a.window()->blocked_until(kNow), b.window()->blocked_until(kNow)));
}

}  // namespace
}  // namespace feroce::device::send_windows_test
