#include "cli/top/sample.hpp"

#include <gtest/gtest.h>

#include "cli/top/views.hpp"

namespace feroce::cli::sample_test {
namespace {

using process::StateQp;
using process::StateReading;
using std::chrono::seconds;

StateQp pair(std::uint32_t qpn, std::uint64_t sent) {
    StateQp out;
    out.qpn = qpn;
    out.type = 2;
    out.state = 3;
    out.packets_sent = sent;
    out.sends_outstanding = 4;
    out.window_bytes = 65'536;
    out.rtt_ns = 12'000;
    return out;
}

StateReading reading(std::uint32_t pid, std::uint64_t bytes, std::vector<StateQp> qps = {}) {
    StateReading out;
    out.alive = out.fresh = true;
    out.snapshot.pid = pid;
    out.snapshot.command = "program";
    out.snapshot.devices = {"feroce_lo"};
    out.snapshot.counters = {{"sent_bytes", bytes}, {"resent_by_rnr", 3}, {"drop_bad_icrc", 2}};
    out.snapshot.qps = std::move(qps);
    return out;
}

TopLook look(int at, std::vector<StateReading> processes) {
    TopLook out;
    out.at = seconds(at);
    out.processes = std::move(processes);
    return out;
}

TEST(Sampler, SumsProcessesUnderTheirDevice) {
    Sampler sampler;
    sampler.take(look(0, {reading(1, 0), reading(2, 0)}));
    const TopSample sample =
        sampler.take(look(2, {reading(1, 200, {pair(7, 1), pair(8, 1)}), reading(2, 600)}));
    ASSERT_EQ(sample.devices.size(), 1U);
    const TopDevice& device = sample.devices[0];
    EXPECT_EQ(device.name, "feroce_lo");
    EXPECT_EQ(device.processes, 2U);
    EXPECT_EQ(device.queue_pairs, 2U);
    EXPECT_EQ(device.outstanding, 8U);
    EXPECT_EQ(device.traffic.sent_bytes, 400);
    EXPECT_EQ(device.traffic.resent[3], 6U) << "rnr";
    ASSERT_EQ(sample.processes.size(), 2U);
    EXPECT_EQ(sample.processes[0].rtt_ns, 12'000U);
    EXPECT_EQ(sample.processes[1].traffic.sent_bytes, 300);
}

TEST(Sampler, LeavesOutProcessesThatHaveEnded) {
    Sampler sampler;
    StateReading ended = reading(1, 5);
    ended.alive = ended.fresh = false;
    EXPECT_TRUE(sampler.take(look(0, {ended})).processes.empty());
}

// The rates of a device must not jump because a process with large counters has ended, or because
// another has its pid.
TEST(Sampler, HasNoRatesOfEndedProcesses) {
    Sampler sampler;
    sampler.take(look(0, {reading(1, 1'000'000), reading(2, 100)}));
    EXPECT_EQ(sampler.take(look(1, {reading(2, 110)})).devices[0].traffic.sent_bytes, 10);
    EXPECT_EQ(sampler.take(look(2, {reading(2, 7)})).devices[0].traffic.sent_bytes, 7);
}

TEST(Sampler, GivesAProcessThatDoesNotAnswerNoRate) {
    Sampler sampler;
    sampler.take(look(0, {reading(1, 100)}));
    StateReading stopped = reading(1, 100);
    stopped.fresh = false;
    const TopSample sample = sampler.take(look(1, {stopped}));
    EXPECT_TRUE(sample.processes[0].silent);
    EXPECT_FALSE(sample.processes[0].traffic.sent_bytes);
    EXPECT_TRUE(json_of(sample)["processes"][0]["sent_bytes_per_second"].is_null());
}

TEST(Sampler, TellsTheLastErrorOfEachQueuePair) {
    Sampler sampler;
    StateReading failed = reading(1, 0, {pair(7, 1), pair(8, 1)});
    const auto reason = [](std::uint32_t qpn, const char* sentence, bool minor = false) {
        process::StateReason out;
        out.qpn = qpn;
        out.minor = minor;
        out.sentence = sentence;
        return out;
    };
    failed.snapshot.reasons = {reason(7, "first"), reason(7, "second"), reason(8, "small", true)};
    failed.snapshot.errors = {{"IBV_WC_REM_ACCESS_ERR", "remote_key", false, 2},
                              {"IBV_WC_WR_FLUSH_ERR", "flushed", false, 50},
                              {"IBV_WC_REM_ACCESS_ERR", "remote_key", true, 9}};
    const TopSample sample = sampler.take(look(0, {failed}));
    EXPECT_EQ(sample.qps[0].last_error, "second");
    EXPECT_EQ(sample.qps[1].last_error, "");
    EXPECT_EQ(sample.processes[0].last_error, "second");
    EXPECT_EQ(sample.processes[0].traffic.errors, 2U) << "neither flushed nor the peer's";
}

LiveSession session(std::uint64_t completed, std::vector<std::uint64_t> read) {
    LiveSession out{"/door", "s", {{"pid", 5}, {"session", "s"}, {"completed", completed}}};
    for (std::size_t i = 0; i < read.size(); ++i)
        out.record["paths"].push_back(
            {{"path", i}, {"state", "connected"}, {"read_bytes", read[i]}, {"write_bytes", 0}});
    return out;
}

TEST(Sampler, HasRatesOfSessionsAlsoWhenAPathIsRemoved) {
    Sampler sampler;
    TopLook before = look(0, {}), after = look(1, {}), later = look(2, {});
    before.sessions = {session(10, {1'000, 5'000})};
    after.sessions = {session(14, {1'100, 5'300})};
    later.sessions = {session(14, {1'150})};
    sampler.take(before);
    const TopSample both = sampler.take(after);
    EXPECT_EQ(both.sessions[0].requests, 4);
    EXPECT_EQ(both.sessions[0].read_bytes, 400);
    EXPECT_EQ(sampler.take(later).sessions[0].read_bytes, 50);
}

TEST(Sampler, HasRatesOfDisks) {
    Sampler sampler;
    TopLook before = look(0, {}), after = look(2, {});
    before.disks = {{.pid = 5, .name = "d", .size = 4096, .reads = 1, .read_bytes = 512}};
    after.disks = {{.pid = 5, .name = "d", .size = 4096, .reads = 5, .read_bytes = 2'512}};
    sampler.take(before);
    const TopSample sample = sampler.take(after);
    EXPECT_EQ(sample.disks[0].reads, 2);
    EXPECT_EQ(sample.disks[0].read_bytes, 1'000);
    EXPECT_EQ(json_of(sample)["disks"][0]["disk"], "d");
}

}  // namespace
}  // namespace feroce::cli::sample_test
