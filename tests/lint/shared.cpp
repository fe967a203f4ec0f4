#include "shared.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "ends.hpp"

namespace lint_programs {
namespace {

// Two threads do something a few hundred times; neither gets far ahead of the other.
template <class Body>
void by_two_threads(Body body) {
    constexpr int kRounds = 300, kAhead = 4;
    std::array<std::atomic<int>, 2> done{};
    const auto run = [&](std::size_t thread) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(50);
        for (int i = 0; i < kRounds; ++i) {
            while (done[1 - thread].load() + kAhead < i) {
                need(std::chrono::steady_clock::now() < end, "the other thread");
                std::this_thread::yield();
            }
            body(static_cast<int>(thread));
            ++done[thread];
        }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
}

struct NoLock {
    void lock() {}
    void unlock() {}
};

template <class Lock>
void share_cq() {
    Wishes promised;
    promised.one_thread = true;
    Ends ends(promised);
    Lock guard;
    by_two_threads([&](int) {
        const std::lock_guard lock(guard);
        ibv_wc wc{};
        need(::ibv_poll_cq(ends.a.cq, 1, &wc) == 0, "ibv_poll_cq");
    });
    ends.close();
}

template <class Lock>
void share_qp() {
    Wishes promised;
    promised.one_thread = true;
    promised.sends = 1024;
    promised.cqe = 1024;
    Ends ends(promised);
    Lock guard;
    by_two_threads([&](int) {
        const std::lock_guard lock(guard);
        need(ends.a.send(write_to(ends.b), ends.a.sge(8)) == 0, "ibv_post_send");
    });
    ends.close();
}

template <class Lock>
void share_list() {
    Wishes many;
    many.sends = 1024;
    many.cqe = 1024;
    Ends ends(many);
    Lock guard;
    ibv_sge entry{};
    ibv_send_wr wr = write_to(ends.b);
    wr.sg_list = &entry;
    wr.num_sge = 1;
    by_two_threads([&](int thread) {
        const std::lock_guard lock(guard);
        entry = ends.a.sge(8, thread == 0 ? 0 : 64);
        ibv_send_wr* bad = nullptr;
        need(::ibv_post_send(ends.a.qp, &wr, &bad) == 0, "ibv_post_send");
    });
    ends.close();
}

// Fills in a receive, posts it, and waits until another thread has got its completion.
void post_until_taken(const End& end, ibv_recv_wr& wr, ibv_sge& entry, std::atomic<int>& taken) {
    const int before = taken.load();
    entry = end.sge(8);
    wr = {};
    wr.wr_id = 7;
    wr.sg_list = &entry;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    need(::ibv_post_recv(end.qp, &wr, &bad) == 0, "ibv_post_recv");
    const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (taken.load() == before) {
        need(std::chrono::steady_clock::now() < last, "a completion");
        std::this_thread::yield();
    }
}

}  // namespace

void cq_of_two_threads() {
    share_cq<NoLock>();
}
void qp_of_two_threads() {
    share_qp<NoLock>();
}
void list_of_two_threads() {
    share_list<NoLock>();
}
void locked_by_two_threads() {
    share_cq<std::mutex>();
    share_qp<std::mutex>();
    share_list<std::mutex>();
}

// Correct: the thread that polls uses a request for something else when it is complete, which may
// be before the call that posts it returns. It is flushed, so that this is often so.
void request_used_again() {
    constexpr int kPosts = 200;
    Ends ends;
    ibv_qp_attr error{};
    ends.a.move(error, IBV_QPS_ERR, 0);
    ibv_sge entry{};
    ibv_recv_wr wr{};
    std::atomic<int> taken{0};
    std::thread polling([&] {
        for (int i = 0; i < kPosts; ++i) {
            ibv_wc wc{};
            need(ends.a.poll(wc) && wc.status == IBV_WC_WR_FLUSH_ERR, "a completion");
            wr = {};
            entry = {};
            ++taken;
        }
    });
    std::thread first([&] { post_until_taken(ends.a, wr, entry, taken); });
    first.join();
    for (int i = 1; i < kPosts; ++i) post_until_taken(ends.a, wr, entry, taken);
    polling.join();
    ends.close();
}

}  // namespace lint_programs
