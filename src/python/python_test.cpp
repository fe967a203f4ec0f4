// The C surface as Python uses it, in one process: what a sanitizer can watch. tests/python has the
// rest, with the interpreter.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitizers.hpp"
#include "python/call.hpp"
#include "python/feroce_python.h"

namespace {

constexpr int kSlice = 500;  // Milliseconds, as the package waits.

feroce_bytes bytes(const std::string& text) {
    return {text.data(), text.size()};
}

struct Done {
    int code = 0;
    std::uint64_t value = 0;
    feroce_handle made = 0;
    std::string data;
    std::string why;
};

class Surface : public testing::Test {
protected:
    Surface() : queue(feroce_queue_create()) {}
    ~Surface() override { feroce_release(queue); }

    Done result(feroce_handle call) const {
        feroce_result out;
        EXPECT_EQ(feroce_call_result(call, &out), 0);
        Done done{out.code, out.value, out.made,
                  std::string(static_cast<const char*>(out.data.data), out.data.size), out.why};
        feroce_release(call);
        return done;
    }
    // Calls that were given up are not told.
    Done wait(feroce_handle call) const {
        EXPECT_NE(call, 0U);
        while (feroce_queue_take(queue, kSlice) != call) {
        }
        return result(call);
    }
    feroce_handle open_server() {
        const feroce_server_options options{"127.0.0.1", 0, 16, 128 << 10};
        const Done opened = wait(feroce_server_open(queue, -1, &options));
        EXPECT_EQ(opened.code, 0) << opened.why;
        port = static_cast<std::uint16_t>(opened.value);
        return opened.made;
    }
    feroce_handle open_session() const {
        const feroce_session_options options{port, 1, 1, 5'000'000'000, 1'000'000'000};
        const Done opened = wait(feroce_session_open(queue, -1, "test", "127.0.0.1", &options));
        EXPECT_EQ(opened.code, 0) << opened.why;
        return opened.made;
    }
    void close(feroce_handle what) const {
        EXPECT_EQ(wait(feroce_close(queue, -1, what)).code, 0);
        feroce_release(what);
    }

    feroce_handle queue;
    std::uint16_t port = 0;
};

// Answers with the message turned round; "wait": not before it is told to.
class Answering {
public:
    explicit Answering(feroce_handle server) : thread_([this, server] { run(server); }) {}
    ~Answering() {
        go_on();
        thread_.join();
    }
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;
    void go_on() {
        waits_ = false;
        waits_.notify_all();
    }
    void await_request() const { asked_.wait(false); }

private:
    void run(feroce_handle server) {
        feroce_request request;
        std::int32_t closed = 0;
        while (closed == 0) {
            const feroce_handle asked = feroce_server_take(server, kSlice, &request, &closed);
            if (asked == 0) continue;
            std::string text(static_cast<const char*>(request.message.data), request.message.size);
            asked_ = true;
            asked_.notify_all();
            if (text == "wait") waits_.wait(true);
            const bool wrong = text == "wrong";
            text.assign(text.rbegin(), text.rend());
            EXPECT_EQ(feroce_server_answer(asked, wrong ? ENOENT : 0, "it is wrong", bytes(text)),
                      0);
            EXPECT_EQ(feroce_server_answer(asked, 0, "", bytes(text)), EALREADY);
            feroce_release(asked);
        }
    }

    std::atomic<bool> waits_ = true;
    std::atomic<bool> asked_ = false;
    std::thread thread_;
};

TEST_F(Surface, HandlesThatAreUnknownAreErrors) {
    feroce_result out;
    EXPECT_EQ(feroce_call_result(12345, &out), EBADF);
    EXPECT_EQ(feroce_call_cancel(12345), 0);
    EXPECT_EQ(feroce_queue_take(12345, 0), 0U);
    EXPECT_EQ(feroce_queue_fd(12345), -1);
    EXPECT_EQ(feroce_session_read(12345, -1, 1, bytes("a"), 1), 0U);
    EXPECT_EQ(wait(feroce_session_read(queue, -1, queue, bytes("a"), 1)).code, EBADF);
    EXPECT_EQ(wait(feroce_disk_flush(queue, -1, 12345)).code, EBADF);
    EXPECT_EQ(wait(feroce_space_barrier(queue, -1, 12345)).code, EBADF);
    EXPECT_EQ(wait(feroce_lock_release(queue, -1, 12345)).code, EBADF);
    EXPECT_EQ(wait(feroce_map_items(queue, -1, 12345)).code, EBADF);
    EXPECT_EQ(wait(feroce_close(queue, -1, queue)).code, EBADF);
    feroce_release(12345);
}

TEST_F(Surface, ASessionAsksAServer) {
    const feroce_handle server = open_server();
    {
        const Answering answering(server);
        const feroce_handle session = open_session();
        EXPECT_EQ(wait(feroce_session_read(queue, -1, session, bytes("abc"), 10)).data, "cba");
        EXPECT_EQ(wait(feroce_session_write(queue, -1, session, bytes("a"), bytes("b"))).code, 0);
        const Done wrong = wait(feroce_session_read(queue, -1, session, bytes("wrong"), 10));
        EXPECT_EQ(wrong.code, ENOENT);
        EXPECT_NE(wrong.why.find("it is wrong"), std::string::npos) << wrong.why;
        EXPECT_EQ(wait(feroce_session_read(queue, -1, session, bytes("a"), 1ULL << 40)).code,
                  EMSGSIZE);
        close(session);
        EXPECT_EQ(wait(feroce_session_read(queue, -1, session, bytes("abc"), 10)).code, EBADF);
        close(server);
    }
}

TEST_F(Surface, CallsAreGivenUpAnywhere) {
    const feroce_handle server = open_server();
    {
        Answering answering(server);
        const feroce_handle session = open_session();
        const feroce_handle waits = feroce_session_read(queue, -1, session, bytes("wait"), 1 << 16);
        answering.await_request();
        EXPECT_EQ(feroce_call_cancel(waits), 1);
        EXPECT_EQ(feroce_call_cancel(waits), 0);
        feroce_release(waits);
        // Some before they begin, some in flight, some when they are done.
        answering.go_on();
        for (int i = 0; i < 200; ++i) {
            const feroce_handle call = feroce_session_read(queue, -1, session, bytes("abc"), 100);
            if (i % 3 == 0) std::this_thread::yield();
            if (i % 7 == 0) {
                EXPECT_EQ(wait(call).data, "cba");
            }
            feroce_call_cancel(call);
            feroce_release(call);
        }
        EXPECT_EQ(wait(feroce_session_read(queue, -1, session, bytes("abc"), 100)).data, "cba");
        const feroce_handle last = feroce_session_read(queue, 1, session, bytes("abc"), 100);
        const int code = wait(last).code;
        EXPECT_TRUE(code == ETIMEDOUT || code == 0) << code;
        feroce_release(session);  // Without a goodbye.
        close(server);
    }
}

// What the caller does not get to see could not be undone by it.
TEST_F(Surface, ACallThatIsNotGivenUpHasItsOutcome) {
    using feroce::python::Call;
    using feroce::python::Outcome;
    for (int i = 0; i < 300; ++i) {
        const std::shared_ptr<Call> call = Call::create(queue);
        std::atomic<bool> go = false;
        std::thread finishing([&] {
            Outcome outcome;
            outcome.value = 7;
            go.wait(false);
            call->finish(std::move(outcome));
        });
        go = true;
        go.notify_all();
        for (int spin = 0; spin < i * 20 && go; ++spin) continue;
        if (!call->cancel()) {
            ASSERT_NE(call->outcome(), nullptr);
            EXPECT_EQ(call->outcome()->value, 7U);
        }
        finishing.join();
        feroce_release(call->handle());
    }
    while (feroce_queue_take(queue, 0) != 0) {
    }
}

TEST_F(Surface, AQueueIsReadableWhileItHoldsCalls) {
    const feroce_handle call = feroce_disk_flush(queue, -1, 12345);
    pollfd readable{feroce_queue_fd(queue), POLLIN, 0};
    EXPECT_EQ(::poll(&readable, 1, 0), 1);
    EXPECT_EQ(feroce_queue_take(queue, 0), call);
    EXPECT_EQ(::poll(&readable, 1, 0), 0);
    EXPECT_EQ(feroce_queue_take(queue, 0), 0U);
    EXPECT_EQ(result(call).code, EBADF);
}

TEST_F(Surface, AnAddressSpaceOfOne) {
    const feroce_space_options options{0, 1, 7474, "", 1 << 20, 1'000'000'000, 1'000'000'000};
    const Done joined = wait(feroce_space_join(queue, -1, &options));
    ASSERT_EQ(joined.code, 0) << joined.why;
    const feroce_handle space = joined.made;
    const std::uint64_t word = wait(feroce_space_share(queue, -1, space, "word", 8)).value;
    EXPECT_EQ(wait(feroce_space_fetch_add(queue, -1, space, word, 7)).value, 0U);
    EXPECT_EQ(wait(feroce_space_compare_swap(queue, -1, space, word, 7, 9)).value, 7U);
    EXPECT_EQ(wait(feroce_space_read(queue, -1, space, word, 8)).data,
              std::string("\x09\0\0\0\0\0\0\0", 8));
    const Done lock = wait(feroce_lock_open(queue, -1, space, "lock", FEROCE_LEASE));
    EXPECT_GT(wait(feroce_lock_acquire(queue, -1, lock.made, 1)).value, 0U);
    EXPECT_EQ(wait(feroce_lock_acquire(queue, -1, lock.made, 1)).code, EDEADLK);
    const Done map = wait(feroce_map_open(queue, -1, space, "map", FEROCE_BYTES_MAP, 4));
    ASSERT_EQ(map.code, 0) << map.why;
    EXPECT_EQ(
        wait(feroce_map_set(queue, -1, map.made, FEROCE_PUT, bytes("a"), bytes("b"), {})).value,
        1U);
    EXPECT_EQ(wait(feroce_map_get(queue, -1, map.made, bytes("a"))).data, "b");
    EXPECT_EQ(wait(feroce_map_items(queue, -1, map.made)).value, 1U);
    close(space);
    EXPECT_EQ(wait(feroce_map_get(queue, -1, map.made, bytes("a"))).code, EBADF);
    feroce_release(map.made);
    feroce_release(lock.made);
}

TEST_F(Surface, SizesThatDoNotFitInAWordAreRefused) {
    const auto join = [this](std::uint64_t memory) {
        const feroce_space_options options{0, 1, 7474, "", memory, 1'000'000'000, 1'000'000'000};
        return wait(feroce_space_join(queue, -1, &options));
    };
    for (const std::uint64_t memory : {~0ULL, ~0ULL - 4096, 1ULL << 63})
        EXPECT_EQ(join(memory).code, ENOMEM) << memory;
    const feroce_handle space = join(1 << 20).made;
    const std::uint64_t word = wait(feroce_space_share(queue, -1, space, "word", 8)).value;
    wait(feroce_space_fetch_add(queue, -1, space, word, 7));
    for (const std::uint64_t buckets : {1ULL << 58, 1ULL << 60, 1ULL << 63, ~0ULL})
        for (const auto kind : {FEROCE_BYTES_MAP, FEROCE_INTEGER_MAP})
            EXPECT_EQ(wait(feroce_map_open(queue, -1, space, "map", kind, buckets)).code, ENOMEM)
                << buckets;
    EXPECT_EQ(wait(feroce_space_fetch_add(queue, -1, space, word, 1)).value, 7U);
    close(space);
}

TEST_F(Surface, AJoinIsGivenUp) {
    const feroce_space_options options{
        0, 2, 7495, "127.0.0.1", 1 << 20, 600'000'000'000, 1'000'000'000};
    const feroce_handle call = feroce_space_join(queue, -1, &options);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(feroce_call_cancel(call), 1);
    feroce_release(call);
}

// As Python's caller that is interrupted when the node has just joined. In a child, which has no
// threads yet: of those that other tests leave, one might end meanwhile.
TEST_F(Surface, AJoinThatIsGivenUpWhenItIsDoneLeavesNoThread) {
    const pid_t child = ::fork();
    if (child == 0) {
        feroce_release(queue);
        queue = feroce_queue_create();
        const auto threads = [] {
            const std::filesystem::directory_iterator all("/proc/self/task");
            return std::distance(begin(all), end(all));
        };
        const auto before = threads();
        const feroce_space_options options{0, 1, 7474, "", 1 << 20, 1'000'000'000, 1'000'000'000};
        const feroce_handle call = feroce_space_join(queue, -1, &options);
        while (feroce_queue_take(queue, kSlice) != call) {
        }
        if (feroce_call_cancel(call) != 0) ::_exit(1);
        feroce_release(call);
        for (int i = 0; i < 1000 && threads() > before; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ::_exit(threads() == before ? 0 : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(Surface, WhatHasNoMemoryIsAnError) {
    const feroce_bytes all{&queue, ~0ULL};
    EXPECT_EQ(wait(feroce_session_write(queue, -1, 12345, all, bytes("a"))).code, ENOMEM);
    EXPECT_EQ(wait(feroce_disk_write(queue, -1, 12345, 0, all, 0)).code, ENOMEM);
    EXPECT_EQ(wait(feroce_space_write(queue, -1, 12345, 0, all)).code, ENOMEM);
    EXPECT_EQ(wait(feroce_map_get(queue, -1, 12345, all)).code, ENOMEM);
    EXPECT_EQ(wait(feroce_map_set(queue, -1, 12345, FEROCE_PUT, all, all, all)).code, ENOMEM);
}

#ifndef FEROCE_ASAN  // UBSan, which comes with it, looks at objects by a descriptor.
// In a child, which has no threads yet.
TEST_F(Surface, WhatHasNoDescriptorIsAnError) {
    const pid_t child = ::fork();
    if (child == 0) {
        feroce_release(queue);
        queue = feroce_queue_create();
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = static_cast<rlim_t>(feroce_queue_fd(queue)) + 1;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        const feroce_session_options session{1, 1, 1, 1'000'000'000, 1'000'000'000};
        const feroce_space_options space{0, 1, 7474, "", 1 << 20, 1'000'000'000, 1'000'000'000};
        const bool fine =
            feroce_queue_create() == 0 &&
            wait(feroce_session_open(queue, -1, "a", "127.0.0.1", &session)).code == EMFILE &&
            wait(feroce_space_join(queue, -1, &space)).code == EMFILE;
        ::_exit(fine ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}
#endif

TEST_F(Surface, AChildHasNothingOfItsParent) {
    const feroce_handle server = open_server();
    const pid_t child = ::fork();
    if (child == 0) {
        feroce_release(server);
        const feroce_handle own = feroce_queue_create();
        const bool fine =
            own != 0 && feroce_queue_take(queue, 0) == 0 && feroce_close(queue, -1, server) == 0;
        ::_exit(fine ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    close(server);
}

}  // namespace

// The threads end before the process, as the package has it.
int main(int count, char** words) {
    testing::InitGoogleTest(&count, words);
    const int status = RUN_ALL_TESTS();
    feroce_shutdown();
    return status;
}
