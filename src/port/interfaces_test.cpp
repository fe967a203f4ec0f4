#include "port/interfaces.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

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

}  // namespace
}  // namespace feroce::port
