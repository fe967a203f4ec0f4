#include "port/event_set.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

#include "port/clock.hpp"
#include "port/fd.hpp"

namespace feroce::port {
namespace {

using namespace std::chrono_literals;

using Wait = int (*)(int, std::span<epoll_event>, Instant);

class EventSetTest : public testing::TestWithParam<Wait> {
protected:
    EventSetTest() {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u32 = 7;
        EXPECT_EQ(::epoll_ctl(set.get(), EPOLL_CTL_ADD, bell.get(), &event), 0);
    }
    void ring() const {
        const std::uint64_t one = 1;
        ASSERT_EQ(::write(bell.get(), &one, sizeof one), 8);
    }

    Fd set{::epoll_create1(EPOLL_CLOEXEC)};
    Fd bell{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::array<epoll_event, 4> events{};
};

TEST_P(EventSetTest, TellsWhatIsThereWithoutAnEnd) {
    ring();
    ASSERT_EQ(GetParam()(set.get(), events, kNever), 1);
    EXPECT_EQ(events[0].data.u32, 7u);
}

TEST_P(EventSetTest, EndsNotBeforeItsTime) {
    const Instant until = monotonic_now() + 300us;
    EXPECT_EQ(GetParam()(set.get(), events, until), 0);
    EXPECT_GE(monotonic_now(), until);
}

TEST_P(EventSetTest, ATimeThatIsOverIsALook) {
    EXPECT_EQ(GetParam()(set.get(), events, monotonic_now() - 1s), 0);
    ring();
    EXPECT_EQ(GetParam()(set.get(), events, monotonic_now() - 1s), 1);
}

INSTANTIATE_TEST_SUITE_P(Ways, EventSetTest, testing::Values(wait_for_events, poll_for_events));

}  // namespace
}  // namespace feroce::port
