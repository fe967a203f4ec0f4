// tools/dist/floor.c where the system has no getrandom(), or does not allow it.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

// That of floor.c: the same name in glibc is a function of its own.
extern "C" std::uint32_t of_the_floor() __asm__("arc4random");

namespace feroce::dist_floor {
namespace {

// The next calls fail: so many with EINTR, and then all with ENOSYS. -1: none does.
int interruptions_left = -1;
int calls = 0;

class Floor : public testing::Test {
protected:
    void SetUp() override { calls = 0; }
    void TearDown() override { interruptions_left = -1; }
};

TEST_F(Floor, NumbersDiffer) {
    EXPECT_FALSE(of_the_floor() == of_the_floor() && of_the_floor() == of_the_floor());
    EXPECT_GE(calls, 2) << "it is glibc's that was called";
}

TEST_F(Floor, ACallThatFailsIsRepeatedOnlyWhenInterrupted) {
    interruptions_left = 2;
    errno = EDOM;
    const std::uint32_t first = of_the_floor();
    EXPECT_EQ(errno, EDOM);
    EXPECT_EQ(calls, 3);
    EXPECT_FALSE(first == of_the_floor() && first == of_the_floor());
}

}  // namespace

ssize_t random_bytes(void* out, std::size_t size, unsigned flags) {
    ++calls;
    if (interruptions_left < 0) return ::syscall(SYS_getrandom, out, size, flags);
    errno = interruptions_left > 0 ? EINTR : ENOSYS;
    if (interruptions_left > 0) --interruptions_left;
    return -1;
}

}  // namespace feroce::dist_floor

// Before that of libc, in this program.
extern "C" ssize_t getrandom(void* out, std::size_t size, unsigned flags) {
    return feroce::dist_floor::random_bytes(out, size, flags);
}
