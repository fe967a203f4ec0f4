// Who owns a slot, seen from another pid namespace, in which numbers of processes mean others.
#include "port/slot_table.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace feroce::port {
namespace {

constexpr std::uint32_t kOwned = 5;
constexpr int kNotAllowed = 77;

int status_of(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// In a process that is number 1 of a pid namespace of its own. What it returned.
int as_first_process(SlotTable& table, const std::function<int(SlotTable&)>& act) {
    const int fd = table.fd();
    const pid_t child = ::fork();
    if (child != 0) return status_of(child);
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(kNotAllowed);
    const pid_t first = ::fork();
    if (first != 0) ::_exit(first > 0 ? status_of(first) : kNotAllowed);
    SlotTable own;
    const bool adopted = own.adopt(Fd(::dup(fd)));
    ::_exit(adopted ? act(own) : -1);
}

TEST(SlotTable, AnOwnerThatDiedInAnotherPidNamespaceIsNotTakenForThisProcess) {
    SlotTable table;
    ASSERT_TRUE(table.create());
    const int claimed = as_first_process(table, [](SlotTable& own) {
        if (!own.try_lock(kOwned)) return 1;
        own.set_owner(kOwned, 17, false);
        return own.has_living_owner(kOwned) ? 0 : 2;
    });
    if (claimed == kNotAllowed) GTEST_SKIP() << "no pid namespace can be made here";
    EXPECT_EQ(claimed, 0);
    EXPECT_EQ(as_first_process(table, [](SlotTable& own) { return own.has_living_owner(kOwned); }),
              0);
}

}  // namespace
}  // namespace feroce::port
