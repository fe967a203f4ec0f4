// Programs without CUDA pay nothing for it: no file is looked for, no system call is made.
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/devices.hpp"
#include "cuda/driver.hpp"
#include "process/silent_host.hpp"

namespace feroce::gpu_without_test {
namespace {

// A child that dies of any system call but the one that ends it.
template <class Body>
int status_of_silent_child(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) ::_exit(9);
        const bool good = body();
        ::syscall(SYS_exit, good ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
}

TEST(WithoutCuda, LookingForItMakesNoSystemCall) {
    process::SilentHost host;
    cuda::Devices devices(host);
    int here = 0;
    const auto address = reinterpret_cast<std::uintptr_t>(&here);
    EXPECT_EQ(status_of_silent_child([&] {
                  bool none = true;
                  for (int i = 0; i < 1000; ++i) {
                      const auto found = devices.find(address, sizeof here);
                      none = none && found && *found == nullptr;
                  }
                  return none && cuda::loaded_driver() == nullptr;
              }),
              0);
}

TEST(WithoutCuda, TheTestItselfWouldNotice) {
    EXPECT_NE(status_of_silent_child([] { return ::syscall(SYS_getppid) != 0; }), 0);
}

}  // namespace
}  // namespace feroce::gpu_without_test
