#include "port/interfaces.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <new>

#include "base/sanitizers.hpp"

namespace feroce::port {
namespace {

TEST(Naming, TakesWholeWordsOnly) {
    for (const char* text : {"feroce_lo", "-d feroce_lo", "UCX_NET_DEVICES=feroce_lo:1",
                             "feroce_eth0,feroce_lo", "xferoce_lo feroce_lo", "=feroce_lo/1"})
        EXPECT_TRUE(has_word(text, "feroce_lo")) << text;
    for (const char* text : {"", "feroce_l", "feroce_lo0", "my_feroce_lo", "feroce_lo_", "lo"})
        EXPECT_FALSE(has_word(text, "feroce_lo")) << text;
    EXPECT_TRUE(has_word(std::string_view("a\0feroce_lo\0b", 13), "feroce_lo"));
}

TEST(Naming, LooksAtArgumentsAndEnvironment) {
    EXPECT_FALSE(program_names("a_word_that_nobody_says"));
    ::setenv("PORT_TEST", "x a_word_that_nobody_says:1", 1);
    EXPECT_TRUE(program_names("a_word_that_nobody_says"));
    ::unsetenv("PORT_TEST");
    EXPECT_TRUE(program_names("port_test")) << "the program's own name";
}

#ifndef FEROCE_ASAN  // UBSan, which comes with it, looks at objects by a descriptor.
// Else a device would lose its addresses, and its port would go down.
TEST(Interfaces, WithoutADescriptorAreNotNone) {
    ASSERT_FALSE(list_interfaces("lo").empty());
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_THROW((void)list_interfaces("lo"), std::bad_alloc);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}
#endif

}  // namespace
}  // namespace feroce::port
