// Memory that goes away under copies, and the application's own signal handlers, which must go on
// working. An "application" handler for SIGSEGV is installed before main, hence before the guard;
// SIGBUS is left to its default.
#include "mem/guard.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "mem/guard_thread.hpp"
#include "mem/test_pages.hpp"
#include "mem/touch.hpp"

namespace feroce::mem {
namespace {

thread_local sigjmp_buf application_recovery;
thread_local volatile sig_atomic_t application_expects = 0;
thread_local volatile sig_atomic_t application_saw = 0;
thread_local volatile sig_atomic_t application_saw_mask = 0;

void application_handler(int signal, siginfo_t* info, void*) {
    application_saw = application_saw + 1;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    application_saw_mask = sigismember(&mask, SIGUSR2) == 1 && sigismember(&mask, SIGSEGV) == 1;
    if (info->si_code <= 0) return;
    if (application_expects != 0) siglongjmp(application_recovery, 1);
    ::signal(signal, SIG_DFL);
}

const bool application_ready = [] {
    struct sigaction action {};
    action.sa_sigaction = application_handler;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR2);
    return sigaction(SIGSEGV, &action, nullptr) == 0;
}();

// A mapping of a file in memory, whose pages beyond its end give SIGBUS.
class FilePages {
public:
    FilePages() : file_(memfd_create("guard_test", 0)), pages_(kPages, file_) { fill(); }
    ~FilePages() { close(file_); }
    FilePages(const FilePages&) = delete;
    FilePages& operator=(const FilePages&) = delete;

    void fill() { resize(pages_.bytes()); }
    void empty() { resize(0); }
    test::Pages& pages() { return pages_; }

private:
    static constexpr std::size_t kPages = 4;
    void resize(std::size_t bytes) { ASSERT(ftruncate(file_, static_cast<off_t>(bytes)) == 0); }

    int file_;
    test::Pages pages_;
};

struct Outcome {
    bool read;
    bool write;
    bool added;
    bool swapped;
    bool stored;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

constexpr Outcome kAll{true, true, true, true, true};
constexpr Outcome kNone{false, false, false, false, false};
constexpr Outcome kReadOnly{true, false, false, false, false};

Outcome try_all(std::byte* at) {
    std::byte bytes[200] = {};
    return {read_memory({at, 200}, bytes), write_memory({at, 200}, bytes),
            fetch_add({at, 8}, 1).has_value(), compare_swap({at, 8}, 0, 1).has_value(),
            atomic_write({at, 8}, 1)};
}

// What every mode of the guard must give.
void expect_survival() {
    test::Pages pages(4);
    EXPECT_EQ(try_all(pages.at(1)), kAll);
    pages.protect(1, 1, PROT_READ);
    EXPECT_EQ(try_all(pages.at(1)), kReadOnly);
    pages.protect(1, 1, PROT_NONE);
    EXPECT_EQ(try_all(pages.at(1)), kNone);
    pages.unmap(1, 1);
    EXPECT_EQ(try_all(pages.at(1)), kNone);
    // A copy that begins in good memory and runs into the hole, at every distance.
    std::byte bytes[200] = {};
    for (std::size_t good = 0; good < 200; ++good) {
        EXPECT_FALSE(read_memory({pages.at(1) - good, 200}, bytes)) << good;
        EXPECT_FALSE(write_memory({pages.at(1) - good, 200}, bytes)) << good;
    }
    EXPECT_TRUE(read_memory({pages.at(1) - 200, 200}, bytes));

    FilePages file;
    EXPECT_EQ(try_all(file.pages().at(0)), kAll);
    file.empty();
    EXPECT_EQ(try_all(file.pages().at(0)), kNone);

    // Not even an address: bits 47 to 62 make the processor raise another fault.
    EXPECT_EQ(try_all(reinterpret_cast<std::byte*>(0x5555'0000'0000'0000)), kNone);
}

TEST(Guard, SurvivesLostMemory) {
    ASSERT_TRUE(application_ready);
    EXPECT_EQ(guard_recheck(), GuardMode::Direct);
    application_saw = 0;
    expect_survival();
    EXPECT_EQ(application_saw, 0);
}

// Then the first piece fails, of whichever size the address wants.
TEST(Guard, SurvivesCopiesThatBeginInAHole) {
    ASSERT_EQ(guard_recheck(), GuardMode::Direct);
    test::Pages pages(1);
    pages.protect(0, 1, PROT_NONE);
    std::byte bytes[200] = {};
    for (std::size_t at = 0; at < 16; ++at) {
        EXPECT_FALSE(read_memory({pages.at(0) + at, 200}, bytes)) << at;
        EXPECT_FALSE(write_memory({pages.at(0) + at, 200}, bytes)) << at;
    }
}

TEST(Guard, ApplicationStillCatchesItsOwnFaults) {
    guard_install();
    test::Pages pages(1);
    pages.protect(0, 1, PROT_NONE);
    for (int i = 0; i < 3; ++i) {
        application_saw = 0;
        application_saw_mask = 0;
        application_expects = 1;
        if (sigsetjmp(application_recovery, 1) == 0) {
            *reinterpret_cast<volatile char*>(pages.at(0)) = 1;
            ADD_FAILURE() << "the store went through";
        }
        application_expects = 0;
        EXPECT_EQ(application_saw, 1);
        EXPECT_EQ(application_saw_mask, 1);  // As if the kernel had called it.
        std::byte byte[1];
        EXPECT_FALSE(read_memory({pages.at(0), 1}, byte));
        EXPECT_EQ(application_saw, 1);
    }
}

TEST(Guard, ApplicationStillGetsSentSignals) {
    guard_install();
    application_saw = 0;
    pthread_kill(pthread_self(), SIGSEGV);
    EXPECT_EQ(application_saw, 1);
}

// A signal that hits in the middle of a copy is the application's, and the copy goes on.
TEST(Guard, SentSignalsDoNotFailCopies) {
    ASSERT_EQ(guard_recheck(), GuardMode::Direct);
    application_saw = 0;
    std::atomic<bool> stop{false};
    std::thread sender([&, target = pthread_self()] {
        while (!stop) pthread_kill(target, SIGSEGV);
    });
    test::Pages pages(16);
    std::vector<std::byte> bytes(pages.bytes());
    bool copied = true;
    while (copied && application_saw < 2000)
        copied = read_memory({pages.at(0), bytes.size()}, bytes);
    stop = true;
    sender.join();
    EXPECT_TRUE(copied);
}

TEST(GuardDeathTest, UnhandledFaultsStillKill) {
    guard_install();
    EXPECT_DEATH(
        {
            test::Pages pages(1);
            pages.protect(0, 1, PROT_NONE);
            *reinterpret_cast<volatile std::byte*>(pages.at(0)) = std::byte{1};
        },
        "");
    EXPECT_DEATH(
        {
            FilePages file;
            file.empty();
            *reinterpret_cast<volatile std::byte*>(file.pages().at(0)) = std::byte{1};
        },
        "");
    EXPECT_DEATH(raise(SIGBUS), "");
}

TEST(Guard, WorksWhereTheThreadBlocksTheSignals) {
    std::thread([] {
        sigset_t both;
        sigemptyset(&both);
        sigaddset(&both, SIGSEGV);
        sigaddset(&both, SIGBUS);
        pthread_sigmask(SIG_BLOCK, &both, nullptr);
        expect_survival();  // At the first access: nobody called guard_recheck().
        EXPECT_EQ(guard_recheck(), GuardMode::Unmasked);
        expect_survival();
        sigset_t after;
        pthread_sigmask(SIG_BLOCK, nullptr, &after);
        EXPECT_EQ(sigismember(&after, SIGSEGV), 1);
        EXPECT_EQ(sigismember(&after, SIGBUS), 1);
        pthread_sigmask(SIG_UNBLOCK, &both, nullptr);
        EXPECT_EQ(guard_recheck(), GuardMode::Direct);
    }).join();
}

TEST(Guard, WorksWhereTheHandlerWasReplaced) {
    ASSERT_EQ(guard_recheck(), GuardMode::Direct);
    for (const int signal : {SIGSEGV, SIGBUS}) {
        struct sigaction theirs {};
        struct sigaction ours {};
        theirs.sa_handler = SIG_DFL;
        ASSERT_EQ(sigaction(signal, &theirs, &ours), 0);
        EXPECT_EQ(guard_recheck(), GuardMode::Kernel);
        expect_survival();
        ASSERT_EQ(sigaction(signal, &ours, nullptr), 0);
        EXPECT_EQ(guard_recheck(), GuardMode::Direct);
        expect_survival();
    }
}

TEST(Guard, OneThreadsRecheckMakesAllLook) {
    ASSERT_EQ(guard_recheck(), GuardMode::Direct);
    std::atomic<int> step{0};
    std::thread other([&] {
        EXPECT_EQ(guard_recheck(), GuardMode::Direct);
        step = 1;
        step.notify_one();
        step.wait(1);
        EXPECT_FALSE(guard_is_direct());
    });
    step.wait(0);
    struct sigaction theirs {};
    struct sigaction ours {};
    theirs.sa_handler = SIG_DFL;
    ASSERT_EQ(sigaction(SIGSEGV, &theirs, &ours), 0);
    EXPECT_EQ(guard_recheck(), GuardMode::Kernel);
    ASSERT_EQ(sigaction(SIGSEGV, &ours, nullptr), 0);
    step = 2;
    step.notify_one();
    other.join();
    EXPECT_EQ(guard_recheck(), GuardMode::Direct);
}

TEST(Guard, ALookNowAndThenFindsAHandlerThatWasReplaced) {
    using namespace std::chrono_literals;
    const Instant start{1h};
    guard_keep_fresh(start);
    ASSERT_EQ(guard_recheck(), GuardMode::Direct);
    struct sigaction theirs {};
    struct sigaction ours {};
    theirs.sa_handler = SIG_DFL;
    ASSERT_EQ(sigaction(SIGSEGV, &theirs, &ours), 0);
    guard_keep_fresh(start + 5ms);
    EXPECT_TRUE(guard_is_direct()) << "it looked a moment ago";
    guard_keep_fresh(start + 6ms);
    EXPECT_FALSE(guard_is_direct());
    ASSERT_EQ(sigaction(SIGSEGV, &ours, nullptr), 0);
    guard_keep_fresh(start);  // As a simulated clock does that starts again.
    EXPECT_TRUE(guard_is_direct());
}

volatile sig_atomic_t plain_saw = 0;

void plain_handler(int) {
    plain_saw = plain_saw + 1;
}

// Of a program that asked for no siginfo. In a process of its own: the guard remembers what it
// found when it came.
TEST(GuardDeathTest, APlainHandlerOfTheApplicationIsCalled) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            ::signal(SIGBUS, plain_handler);
            guard_install();
            raise(SIGBUS);
            std::exit(plain_saw == 1 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
    testing::FLAGS_gtest_death_test_style = "fast";
}

// Copies while `change(round)` takes the memory away and brings it back, until both outcomes were
// seen often.
template <class Change>
void copy_under(std::byte* at, std::size_t size, Change change) {
    std::atomic<bool> stop{false};
    std::thread changer([&] {
        for (unsigned round = 0; !stop; ++round) change(round);
    });
    int good = 0;
    int bad = 0;
    std::vector<std::byte> bytes(size);
    while (good < 500 || bad < 500) {
        const bool read = read_memory({at, size}, bytes);
        const bool write = write_memory({at, size}, bytes);
        const bool add = fetch_add({at + size - 8, 8}, 1).has_value();
        good += read + write + add;
        bad += !read + !write + !add;
    }
    stop = true;
    changer.join();
}

TEST(Guard, SurvivesMappingsThatChangeUnderLoad) {
    test::Pages pages(2);
    copy_under(pages.at(0), pages.bytes(), [&](unsigned round) {
        // Replaced in one step, because a hole might be filled by another thread's mapping.
        const int protection = round % 2 == 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
        mmap(pages.at(1), pages.page(), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    });
}

TEST(Guard, SurvivesProtectionThatChangesUnderLoad) {
    test::Pages pages(2);
    constexpr int kProtections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    copy_under(pages.at(0), pages.bytes(),
               [&](unsigned round) { pages.protect(1, 1, kProtections[round % 3]); });
}

TEST(Guard, SurvivesTruncationUnderLoad) {
    FilePages file;
    copy_under(file.pages().at(0), file.pages().bytes(),
               [&](unsigned round) { round % 2 == 0 ? file.empty() : file.fill(); });
}

}  // namespace
}  // namespace feroce::mem
