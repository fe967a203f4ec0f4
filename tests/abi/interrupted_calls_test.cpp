// Every call, in threads that do not end well: the device works afterwards. See calls.hpp.
#include <gtest/gtest.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "calls.hpp"

namespace feroce::calls {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

// Exported for libraries of our own and of hardware's providers, not for programs.
bool is_private(const std::string& node) {
    return node.find("PRIVATE") != std::string::npos || node.find("FEROCE") != std::string::npos;
}

std::set<std::string> exported(const char* map) {
    std::ifstream file(map);
    EXPECT_TRUE(file.good()) << map;
    std::set<std::string> out;
    bool counts = false;
    for (std::string line; std::getline(file, line);) {
        std::string word;
        std::istringstream(line) >> word;
        if (line.find('{') != std::string::npos) counts = !is_private(word);
        if (counts && word.size() > 2 && word.back() == ';' && word.front() != '}')
            out.insert(word.substr(0, word.size() - 1));
    }
    return out;
}

TEST(InterruptedCalls, EveryExportedCallHasARow) {
    std::set<std::string> rows;
    for (const Row& row : all_rows()) rows.insert(row.name);
    for (const char* map : {FEROCE_VERBS_MAP, FEROCE_RDMACM_MAP}) {
        const std::set<std::string> calls = exported(map);
        EXPECT_GT(calls.size(), 50u);
        for (const std::string& call : calls) EXPECT_TRUE(rows.contains(call)) << call;
    }
}

bool eventually(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!holds()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

// Runs a row's program in a thread.
class ThreadRun : public Run {
public:
    explicit ThreadRun(const Row& row) : row_(row) {}

    void start() { ASSERT_EQ(::pthread_create(&thread_, nullptr, &ThreadRun::enter, this), 0); }
    // What the thread returned; null if it does not end.
    void* join() {
        void* result = nullptr;
        timespec end{};
        ::clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += std::chrono::seconds(kPatience).count();
        if (::pthread_timedjoin_np(thread_, &result, &end) != 0) return nullptr;
        return result;
    }
    pthread_t thread() const { return thread_; }
    bool finished() const { return finished_.load(); }
    bool sleeps() const {
        const int tid = tid_.load();
        if (tid == 0) return false;
        std::ifstream stat("/proc/self/task/" + std::to_string(tid) + "/stat");
        std::string pid, name, state;
        stat >> pid >> name >> state;
        return state == "S";
    }

    void go() override { tid_.store(static_cast<int>(::syscall(SYS_gettid))); }

protected:
    virtual void* body() {
        row_.program(*this);
        finished_.store(true);
        ::pthread_testcancel();
        return this;
    }
    const Row& row_;
    std::atomic<bool> finished_{false};

private:
    static void* enter(void* self) { return static_cast<ThreadRun*>(self)->body(); }
    pthread_t thread_{};
    std::atomic<int> tid_{0};
};

class CancelledBefore final : public ThreadRun {
public:
    using ThreadRun::ThreadRun;
    void go() override { ::pthread_cancel(::pthread_self()); }
};

TEST(InterruptedCalls, CancelledBeforeTheCall) {
    ASSERT_TRUE(world().open());
    for (const Row& row : all_rows()) {
        SCOPED_TRACE(row.name);
        CancelledBefore run(row);
        run.start();
        ASSERT_EQ(run.join(), PTHREAD_CANCELED);
        // Only a call that waits may be one that a cancellation ends.
        EXPECT_TRUE(run.finished() || row.blocks);
        ASSERT_TRUE(world().works());
    }
}

TEST(InterruptedCalls, CancelledInTheWait) {
    for (const Row& row : blocking_rows()) {
        SCOPED_TRACE(row.name);
        for (int round = 0; round < 3; ++round) {
            ThreadRun run(row);
            run.start();
            ASSERT_TRUE(eventually([&] { return run.sleeps(); }));
            ASSERT_EQ(::pthread_cancel(run.thread()), 0);
            ASSERT_EQ(run.join(), PTHREAD_CANCELED);
            EXPECT_FALSE(run.finished());
            ASSERT_TRUE(world().works());
        }
    }
}

// The call is made by a destructor of the thread's own data, as the thread exits.
class AtThreadExit final : public ThreadRun {
public:
    using ThreadRun::ThreadRun;

private:
    void* body() override {
        static const pthread_key_t key = [] {
            pthread_key_t made;
            ::pthread_key_create(&made,
                                 [](void* self) { static_cast<AtThreadExit*>(self)->call(); });
            return made;
        }();
        ::pthread_setspecific(key, this);
        ::pthread_exit(this);
    }
    void call() {
        row_.program(*this);
        finished_.store(true);
    }
};

TEST(InterruptedCalls, MadeWhileTheThreadExits) {
    for (const Row& row : all_rows()) {
        if (row.blocks) continue;
        SCOPED_TRACE(row.name);
        AtThreadExit run(row);
        run.start();
        ASSERT_EQ(run.join(), &run);
        EXPECT_TRUE(run.finished());
        ASSERT_TRUE(world().works());
    }
}

thread_local sigjmp_buf way_out;
thread_local volatile sig_atomic_t may_jump = 0;

void jump(int) {
    if (may_jump == 0) return;
    may_jump = 0;
    ::siglongjmp(way_out, 1);
}

void handle(int signal) {
    struct sigaction action {};
    action.sa_handler = jump;
    ASSERT_EQ(::sigaction(signal, &action, nullptr), 0);
}

class LeftByJump final : public ThreadRun {
public:
    using ThreadRun::ThreadRun;
    void go() override {
        may_jump = 1;
        ThreadRun::go();
    }

private:
    void* body() override {
        if (::sigsetjmp(way_out, 1) == 0) {
            row_.program(*this);
            may_jump = 0;
            finished_.store(true);
        }
        return this;
    }
};

TEST(InterruptedCalls, LeftByJumpOutOfTheWait) {
    handle(SIGUSR1);
    for (const Row& row : blocking_rows()) {
        SCOPED_TRACE(row.name);
        for (int round = 0; round < 3; ++round) {
            LeftByJump run(row);
            run.start();
            ASSERT_TRUE(eventually([&] { return run.sleeps(); }));
            ASSERT_EQ(::pthread_kill(run.thread(), SIGUSR1), 0);
            ASSERT_EQ(run.join(), &run);
            EXPECT_FALSE(run.finished());
            ASSERT_TRUE(world().works());
        }
    }
}

}  // namespace
}  // namespace feroce::calls
