// Processes that have nothing to do sleep: no thread of theirs wakes up to look whether others have
// died, and yet they hear of it.
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ring.hpp"

namespace feroce::share {
namespace idle_test {

using std::chrono::seconds;

constexpr int kSpan = 3;  // Seconds.
// Of which the quietest counts: on a busy machine others may come late to what they do at first.
constexpr int kSpans = 8;

// How often the threads of a process have gone to sleep: as often as they were woken up. That they
// had to leave their core to others is not counted.
long sleeps(pid_t pid) {
    long sum = 0;
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
        std::ifstream file(task.path() / "status");
        for (std::string line; std::getline(file, line);)
            if (line.starts_with("voluntary_ctxt_switches:"))
                sum += std::stol(line.substr(sizeof "voluntary_ctxt_switches:"));
    }
    return sum;
}

// How many rings a process has mapped.
long rings(pid_t pid) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    long count = 0;
    for (std::string line; std::getline(maps, line);)
        if (line.find("memfd:feroce-ring") != std::string::npos) ++count;
    return count;
}

constexpr std::uint8_t kTimeout = 19;  // 2.1 s: a guest on a busy machine changes its relay.

struct Shared {
    std::atomic<std::uint32_t> ready{0};
    std::array<LinkReport, 2> ends;
    static Shared& make() {
        return *new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
    }
};

class Idle : public testing::Test {
protected:
    void SetUp() override {
        if (::geteuid() != 0) return;
        enter_private_network();
        // Whoever runs `feroce stat` elsewhere would wake all that it finds there.
        ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
        ASSERT_EQ(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
        ASSERT_EQ(::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr), 0);
    }
    void TearDown() override {
        for (const pid_t pid : pids) ::kill(pid, SIGKILL);
        for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
    }
    // A process that does this and then nothing more.
    void start(const std::function<bool()>& work) {
        const std::uint32_t before = shared.ready;
        begin(work);
        ASSERT_TRUE(await(seconds(60), [&] { return shared.ready > before; }));
    }
    void begin(const std::function<bool()>& work) {
        pids.push_back(::fork());
        if (pids.back() != 0) return;
        if (!work()) ::_exit(1);
        ++shared.ready;
        for (;;) ::pause();
    }
    static bool open_device() { return verbs::open_loopback() != nullptr; }

    // The most that one of them woke up in a second of the quietest span, or of one with few
    // enough.
    double wake_ups_a_second(double enough = 0) {
        double least = 1e9;
        ::poll(nullptr, 0, 1000);  // The second of silence.
        for (int i = 0; i < kSpans && least > enough; ++i) {
            std::vector<long> before;
            for (const pid_t pid : pids) before.push_back(sleeps(pid));
            ::poll(nullptr, 0, 1000 * kSpan);
            long most = 0;
            for (std::size_t p = 0; p < pids.size(); ++p)
                most = std::max(most, sleeps(pids[p]) - before[p]);
            least = std::min(least, static_cast<double>(most) / kSpan);
        }
        return least;
    }

    // Two that have exchanged messages by rings.
    bool connect_and_send(std::uint32_t index) {
        ibv_context* context = verbs::open_loopback();
        if (context == nullptr) return false;
        end = new Endpoint(context);  // For as long as the process lives.
        LinkReport& own = shared.ends[index];
        LinkReport& far = shared.ends[1 - index];
        own.rkey = end->mr->rkey;
        own.address = end->address(0);
        own.qpn = end->qp->qp_num;
        own.rounds = 1;
        if (!await(seconds(30), [&] { return far.rounds >= 1; })) return false;
        if (end->to_init() != 0 || end->to_rtr(far.qpn) != 0 || end->to_rts(kTimeout) != 0)
            return false;
        own.rounds = 2;
        if (!await(seconds(30), [&] { return far.rounds >= 2; })) return false;
        if (!send_some(far)) return false;
        own.rounds = 3;
        return await(seconds(30), [&] { return far.rounds >= 3; });
    }
    bool send_some(const LinkReport& far) const {
        for (int i = 0; i < 100; ++i)
            if (end->post(IBV_WR_RDMA_WRITE, end->sge(0, 64), far.address + 64, far.rkey) != 0 ||
                end->completion().status != IBV_WC_SUCCESS)
                return false;
        return true;
    }
    // Sends, sleeps until it is told to go on, and sends again.
    bool be_guest(std::uint32_t index) {
        if (!become_ordinary_user() || !connect_and_send(index)) return false;
        ++shared.ready;
        char byte;
        return ::read(go[0], &byte, 1) == 1 && send_some(shared.ends[1 - index]);
    }

    Shared& shared = Shared::make();
    std::vector<pid_t> pids;
    Endpoint* end = nullptr;  // Of a child.
    int go[2] = {-1, -1};     // A byte for each guest that is to go on.
};

TEST_F(Idle, WithoutConnectionsNobodyWakesUp) {
    for (int i = 0; i < 4; ++i) start(open_device);
    EXPECT_EQ(wake_ups_a_second(), 0);
    // Those that hear of a death have something to do, and then nothing more.
    ::kill(pids[1], SIGKILL);
    ::waitpid(pids[1], nullptr, 0);
    pids.erase(pids.begin() + 1);
    EXPECT_EQ(wake_ups_a_second(), 0);
}

// Of root's port, by a relay that is killed. They hear of it and go on with another one.
TEST_F(Idle, GuestsOfAnotherUserSleepToo) {
    if (::geteuid() != 0) GTEST_SKIP() << "takes root";
    ASSERT_EQ(::pipe(go), 0);
    start(open_device);  // Alone so far, hence the relay of both.
    for (std::uint32_t i = 0; i < 2; ++i) begin([this, i] { return be_guest(i); });
    ASSERT_TRUE(await(seconds(60), [&] { return shared.ready == 3; }));
    start(open_device);
    EXPECT_LE(wake_ups_a_second(2), 2) << "to look whether the relay is stopped";
    ::kill(pids[0], SIGKILL);
    ::waitpid(pids[0], nullptr, 0);
    pids.erase(pids.begin());
    EXPECT_LE(wake_ups_a_second(2), 2);
    ASSERT_EQ(::write(go[1], "go", 2), 2);
    ASSERT_TRUE(await(seconds(60), [&] { return shared.ready == 6; }));
    EXPECT_LE(wake_ups_a_second(2), 2);
}

TEST_F(Idle, AGuestWithoutQueuePairsDoesNotWakeUp) {
    if (::geteuid() != 0) GTEST_SKIP() << "takes root";
    start(open_device);
    start([] { return become_ordinary_user() && open_device(); });
    EXPECT_EQ(wake_ups_a_second(), 0);
}

// The one that sends notices by that. The other one has nothing to send, and would hear nothing.
TEST_F(Idle, AGuestThatOnlyWaitsNoticesThatItsRelayIsStopped) {
    if (::geteuid() != 0) GTEST_SKIP() << "takes root";
    ASSERT_EQ(::pipe(go), 0);
    start(open_device);
    for (std::uint32_t i = 0; i < 2; ++i) begin([this, i] { return be_guest(i); });
    ASSERT_TRUE(await(seconds(60), [&] { return shared.ready == 3; }));
    start(open_device);
    EXPECT_LE(wake_ups_a_second(2), 2) << "they rest";
    ASSERT_EQ(::kill(pids[0], SIGSTOP), 0);
    ASSERT_EQ(::waitpid(pids[0], nullptr, WUNTRACED), pids[0]);
    ASSERT_EQ(::write(go[1], "g", 1), 1);
    EXPECT_TRUE(await(seconds(60), [&] { return shared.ready == 5; }));
}

TEST_F(Idle, WithRingsADeathIsNoticedAllTheSame) {
    ::setenv("FEROCE_SAMEHOST", "on", 1);
    for (std::uint32_t i = 0; i < 2; ++i) begin([this, i] { return connect_and_send(i); });
    ASSERT_TRUE(await(seconds(60), [&] { return shared.ready == 2; }));
    EXPECT_LE(wake_ups_a_second(2), 2);
    EXPECT_GE(rings(pids[0]), 2);
    ::kill(pids[1], SIGKILL);
    ::waitpid(pids[1], nullptr, 0);
    pids.pop_back();
    EXPECT_TRUE(await(seconds(60), [&] { return rings(pids[0]) == 0; }));
}

rdma_cm_id* endpoint(bool passive) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    if (passive) hints.ai_flags = RAI_PASSIVE;
    rdma_addrinfo* found = nullptr;
    if (rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found) != 0) return nullptr;
    ibv_qp_init_attr attributes{};
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    rdma_cm_id* id = nullptr;
    return rdma_create_ep(&id, found, nullptr, &attributes) == 0 ? id : nullptr;
}

TEST_F(Idle, ConnectionsOfTheConnectionManagerKeepNobodyBusy) {
    begin([this] {
        rdma_cm_id* listener = endpoint(true);
        if (listener == nullptr || rdma_listen(listener, 8) != 0) return false;
        shared.ends[0].rounds = 1;
        rdma_cm_id* id = nullptr;
        return rdma_get_request(listener, &id) == 0 && rdma_accept(id, nullptr) == 0;
    });
    ASSERT_TRUE(await(seconds(60), [&] { return shared.ends[0].rounds == 1; }));
    start([] {
        rdma_cm_id* id = endpoint(false);
        return id != nullptr && rdma_connect(id, nullptr) == 0;
    });
    ASSERT_TRUE(await(seconds(60), [&] { return shared.ready == 2; }));
    EXPECT_LE(wake_ups_a_second(2), 2);
}

}  // namespace idle_test
}  // namespace feroce::share
