#include "preload/next.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace feroce::preload {
namespace next_test {
namespace {

TEST(Next, CallsTheFunctionOfLibc) {
    Next<pid_t()> next("getpid");
    EXPECT_EQ(next(), ::getpid());
}

// As fstatat is on glibc before 2.33. The program's own dlerror() stays what it was.
TEST(Next, AFunctionThatLibcDoesNotHaveIsLookedUpOnce) {
    Next<void()> next("feroce_is_not_in_libc");
    EXPECT_EQ(next.get(), nullptr);
    EXPECT_EQ(::dlerror(), nullptr);
    ASSERT_EQ(::dlsym(RTLD_DEFAULT, "feroce_of_the_program"), nullptr);
    EXPECT_EQ(next.get(), nullptr);
    const char* error = ::dlerror();
    ASSERT_NE(error, nullptr);
    EXPECT_NE(std::string(error).find("feroce_of_the_program"), std::string::npos) << error;
}

}  // namespace
}  // namespace next_test
}  // namespace feroce::preload
