// Names of machines: found off the loop's thread, and refused with a sentence.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <cerrno>
#include <string_view>

#include "feroce/loop.hpp"
#include "feroce/resolve.hpp"
#include "feroce/task_group.hpp"

namespace {
std::atomic<bool> resolver_hangs = false;
}

// No test asks a name server: it is not on this machine.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** out) {
    if (name != nullptr && std::string_view(name).ends_with(".invalid")) {
        resolver_hangs.wait(true);
        return EAI_NONAME;
    }
    static const auto real =
        reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(name, service, hints, out);
}

namespace feroce::rdma {
namespace {

using namespace std::chrono_literals;

TEST(Resolve, NumbersAreTakenAsTheyAre) {
    Loop loop;
    for (const char* text : {"10.0.0.1:7471", "[::1]:7471", "::1", "127.0.0.1"}) {
        const auto found = loop.run(resolve(loop, text));
        ASSERT_TRUE(found) << text;
        ASSERT_EQ(found->size(), 1u);
        EXPECT_EQ(found->front().text(), Address(text).text());
    }
}

TEST(Resolve, ANameHasAddressesAndKeepsItsPort) {
    Loop loop;
    const auto found = loop.run(resolve(loop, "localhost:7471"));
    ASSERT_TRUE(found) << found.error().why;
    ASSERT_FALSE(found->empty());
    for (const Address& address : *found) EXPECT_EQ(address.port(), 7471);
    EXPECT_TRUE(resolve_blocking("localhost"));
}

TEST(Resolve, WhatCannotBeANameIsRefusedWithoutAsking) {
    for (const char* text : {"", "10.0.0.300", "10.0.0", "a b", "host:port", "host:70000", "[host]",
                             "fe80::1%nosuchdevice", "host:1:2"}) {
        EXPECT_FALSE(check_host(text)) << text;
        EXPECT_EQ(resolve_blocking(text).error().code, EINVAL) << text;
    }
    for (const char* text : {"storage1", "storage1.rack7", "node_3:7471", "9front", "a."})
        EXPECT_TRUE(check_host(text)) << text;
}

TEST(Resolve, ANameWithoutAddressIsASentence) {
    Loop loop;
    const auto found = loop.run(resolve(loop, "no-such-machine.invalid").until(loop.after(20s)));
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ENOENT);
    EXPECT_NE(found.error().why.find("'no-such-machine.invalid' has no address"), std::string::npos)
        << found.error().why;
}

// The resolver cannot be stopped, but the coroutine that waits for it can, and the loop may go.
TEST(Resolve, NobodyHasToWaitForTheResolver) {
    resolver_hangs = true;
    {
        Loop loop;
        const auto found = loop.run(resolve(loop, "hangs.invalid").until(loop.after(10ms)));
        ASSERT_FALSE(found);
        EXPECT_EQ(found.error().code, ETIMEDOUT);
        TaskGroup group(loop);
        for (int i = 0; i < 20; ++i)
            group.spawn(
                [](Loop& at) -> Task<void> { (void)co_await resolve(at, "hangs.invalid"); }(loop));
        loop.poll();
    }
    resolver_hangs = false;
    resolver_hangs.notify_all();
}

}  // namespace
}  // namespace feroce::rdma
