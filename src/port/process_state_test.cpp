#include "port/process_state.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace feroce::port::process_state_test {
namespace {

TEST(ProcessState, TellsOneThatIsStopped) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_NAME, "a) T (b");  // What a reader could take for the state.
        (void)!::write(ready[1], "r", 1);
        for (;;) ::pause();
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(state_of(child), ProcessState::Running);
    ASSERT_EQ(::kill(child, SIGSTOP), 0);
    ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
    EXPECT_EQ(state_of(child), ProcessState::Stopped);
    ASSERT_EQ(::kill(child, SIGCONT), 0);
    ASSERT_EQ(::waitpid(child, nullptr, WCONTINUED), child);
    EXPECT_EQ(state_of(child), ProcessState::Running);
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(state_of(child), ProcessState::Unknown);
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST(ProcessState, KnowsNothingOfNobody) {
    EXPECT_EQ(state_of(0), ProcessState::Unknown);
    EXPECT_EQ(state_of(-1), ProcessState::Unknown);
}

}  // namespace
}  // namespace feroce::port::process_state_test
