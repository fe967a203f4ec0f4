// Transfers by SEND, WRITE and READ and fetch-adds over 16 queue pairs, all at once, while the port
// drops, duplicates, reorders and corrupts: bytes must be equal and the sum exact. One forked
// process a seed, because the faults are chosen by the environment when a process first opens the
// device.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "verbs/common.hpp"
#include "verbs/instance.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

constexpr std::size_t kPairs = 16;
constexpr std::uint32_t kMessageBytes = 16384;  // A quarter of an endpoint's memory.

int number_from(const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
}

// Retries for ever in practice: a timeout of 4.096 us * 2^8 and 7 retries.
int patient_rts(const Endpoint& endpoint) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 8;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 4;
    return ibv_modify_qp(endpoint.qp, &a,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

struct Link {
    explicit Link(ibv_context* context) : left(context), right(context) {
        good = left.to_init() == 0 && right.to_init() == 0 && left.to_rtr(right.qp->qp_num) == 0 &&
               right.to_rtr(left.qp->qp_num) == 0 && patient_rts(left) == 0 &&
               patient_rts(right) == 0;
    }
    Endpoint left, right;
    bool good = false;
};

bool succeeded(const ibv_wc& wc, const char* what) {
    if (wc.status == IBV_WC_SUCCESS) return true;
    std::fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc.status));
    return false;
}

// One message of each kind on each link, in flight on all links together.
bool round_of_messages(std::vector<std::unique_ptr<Link>>& links, Prng& random) {
    for (auto& link : links) {
        for (std::uint32_t i = 0; i < kMessageBytes; ++i)
            link->left.memory[i] = static_cast<char>(random.next());
        if (link->right.post_receive(0, kMessageBytes) != 0) return false;
        if (link->left.post(IBV_WR_SEND, link->left.sge(0, kMessageBytes), 0, 0) != 0) return false;
        if (link->left.post(IBV_WR_RDMA_WRITE, link->left.sge(0, kMessageBytes),
                            link->right.address(kMessageBytes), link->right.mr->rkey) != 0)
            return false;
        if (link->right.post(IBV_WR_RDMA_READ, link->right.sge(2 * kMessageBytes, kMessageBytes),
                             link->left.address(0), link->left.mr->rkey) != 0)
            return false;
    }
    for (auto& link : links) {
        for (int i = 0; i < 2; ++i)
            if (!succeeded(link->left.completion(), "left")) return false;
        for (int i = 0; i < 2; ++i)
            if (!succeeded(link->right.completion(), "right")) return false;
        for (std::size_t part = 0; part < 3; ++part)
            if (std::memcmp(link->left.memory.data(),
                            link->right.memory.data() + part * kMessageBytes, kMessageBytes) != 0)
                return false;
    }
    return true;
}

// Each link has a word of its own, and each add must count once.
bool count_exactly(std::vector<std::unique_ptr<Link>>& links, int adds) {
    const std::size_t word = 3 * kMessageBytes;
    for (int i = 0; i < adds; ++i) {
        for (auto& link : links)
            if (link->left.post(IBV_WR_ATOMIC_FETCH_AND_ADD, link->left.sge(word, 8),
                                link->right.address(word), link->right.mr->rkey) != 0)
                return false;
        for (auto& link : links)
            if (!succeeded(link->left.completion(), "fetch-add")) return false;
    }
    for (auto& link : links) {
        std::uint64_t sum = 0;
        std::memcpy(&sum, link->right.memory.data() + word, sizeof sum);
        if (sum != static_cast<std::uint64_t>(adds)) return false;
    }
    return true;
}

// Most of what follows a lost packet is kept; with FEROCE_REPAIR=off all of it is dropped.
bool keeps_as_wished(ibv_context* context) {
    std::uint64_t early = 0, dropped = 0;
    process::Process& process = process_of(context);
    for (std::uint32_t i = 0; i < process.shard_count(); ++i)
        process.shard(i).inspect(std::chrono::seconds(20), [&](device::Engine& engine) {
            early += engine.counters()[transport::Counter::OutOfSequenceRequest];
            dropped += engine.counters()[transport::DropReason::OutOfSequence];
        });
    const char* repair = std::getenv("FEROCE_REPAIR");
    const bool wished = repair == nullptr || std::strcmp(repair, "off") != 0;
    const bool keeps = 2 * dropped < early;
    if (keeps != wished || early == 0)
        std::fprintf(stderr, "%llu of %llu early packets were dropped\n",
                     static_cast<unsigned long long>(dropped),
                     static_cast<unsigned long long>(early));
    return keeps == wished && early > 0;
}

bool run(int mib, std::uint64_t seed) {
    ibv_context* context = open_loopback();
    if (context == nullptr) return false;
    std::vector<std::unique_ptr<Link>> links;
    for (std::size_t i = 0; i < kPairs; ++i) {
        links.push_back(std::make_unique<Link>(context));
        if (!links.back()->good) return false;
    }
    Prng random(seed);
    const std::size_t rounds =
        static_cast<std::size_t>(mib) * 1024 * 1024 / (kPairs * kMessageBytes);
    for (std::size_t i = 0; i < std::max<std::size_t>(rounds, 1); ++i)
        if (!round_of_messages(links, random)) return false;
    return count_exactly(links, mib * 25) && keeps_as_wished(context);
}

TEST(LossyTransfer, BytesAreEqualAndSumsExact) {
    const int seeds = number_from("FEROCE_TEST_SEEDS", 2);
    const int mib = number_from("FEROCE_TEST_MIB", 4);
    for (int seed = 1; seed <= seeds; ++seed) {
        const pid_t child = ::fork();
        if (child == 0) {
            const std::string faults =
                "drop=0.01,dup=0.01,reorder=0.01,corrupt=0.005,seed=" + std::to_string(seed);
            ::setenv("FEROCE_FAULTS", faults.c_str(), 1);
            ::_exit(run(mib, static_cast<std::uint64_t>(seed)) ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "seed " << seed;
    }
}

TEST(LossyTransfer, ARepairThatIsNotUnderstoodKeepsTheDeviceClosed) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::setenv("FEROCE_REPAIR", "some", 1);
        ::_exit(open_loopback() == nullptr ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace feroce::verbs
