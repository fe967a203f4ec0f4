#include "cli/metrics/ledger.hpp"

#include <gtest/gtest.h>

#include "cli/metrics/families.hpp"

namespace feroce::cli::ledger_test {
namespace {

using process::StateReading;
using process::StateSnapshot;

StateReading reading(std::uint32_t pid, std::uint64_t sent, const char* device = "feroce_lo") {
    StateReading out;
    out.alive = out.fresh = true;
    out.snapshot.pid = pid;
    out.snapshot.command = "program";
    out.snapshot.devices = {device};
    out.snapshot.counters = {{"sent_pkts", sent}, {"ring_memory_bytes", 4096}};
    return out;
}

StateReading ended(std::uint32_t pid, std::uint64_t sent, std::int64_t when) {
    StateReading out = reading(pid, sent);
    out.alive = false;
    out.changed_ns = when;
    return out;
}

std::uint64_t total(const Ledger& ledger, const char* device = "feroce_lo",
                    const char* key = "sent_pkts") {
    const auto devices = ledger.devices();
    const auto found = devices.find(device);
    return found == devices.end() ? 0 : count_of(found->second, key);
}

TEST(Ledger, KeepsWhatEndedProcessesCounted) {
    Ledger ledger(8);
    ledger.take({reading(1, 100), reading(2, 50)});
    EXPECT_EQ(total(ledger), 150U);
    ledger.take({reading(2, 60)});
    EXPECT_EQ(total(ledger), 160U);
    EXPECT_EQ(total(ledger, "feroce_lo", "ring_memory_bytes"), 4096U) << "of the live one only";
    ledger.take({});
    EXPECT_EQ(total(ledger), 160U);
    EXPECT_TRUE(ledger.processes().empty());
}

TEST(Ledger, TakesAPidWhoseCountersFellForAnotherProcess) {
    Ledger ledger(8);
    ledger.take({reading(1, 100)});
    ledger.take({reading(1, 30)});
    EXPECT_EQ(total(ledger), 130U);
}

TEST(Ledger, CountsLastWordsOnceAndNotThoseOfBefore) {
    Ledger ledger(8);
    ledger.take({ended(1, 1'000, 5), reading(2, 10)});
    EXPECT_EQ(total(ledger), 10U) << "it ended before we looked";
    ledger.take({ended(1, 1'000, 5), ended(2, 17, 6), ended(3, 4, 7)});
    EXPECT_EQ(total(ledger), 21U) << "2 sent seven more, and 3 lived between two looks";
    ledger.take({ended(1, 1'000, 5), ended(2, 17, 6), ended(3, 4, 7)});
    EXPECT_EQ(total(ledger), 21U);
}

TEST(Ledger, LabelsAsManyProcessesAsItMayAndSumsTheOthers) {
    Ledger ledger(2);
    ledger.take({reading(1, 1), reading(2, 2), reading(3, 4), reading(4, 8)});
    EXPECT_TRUE(ledger.processes().at(2).labelled);
    EXPECT_FALSE(ledger.processes().at(3).labelled);
    EXPECT_EQ(count_of(ledger.others().counts, "sent_pkts"), 12U);
    ledger.take({reading(2, 2), reading(4, 8), reading(5, 16)});
    EXPECT_FALSE(ledger.processes().at(4).labelled) << "a series must not begin in its middle";
    EXPECT_TRUE(ledger.processes().at(5).labelled);
    EXPECT_EQ(count_of(ledger.others().counts, "sent_pkts"), 12U) << "3 ended, its counts stay";
}

TEST(Ledger, AProcessWithoutADeviceIsInNoSum) {
    Ledger ledger(2);
    ledger.take({reading(1, 7, "")});
    EXPECT_TRUE(ledger.devices().empty());
    ledger.take({reading(1, 9)});
    EXPECT_EQ(total(ledger), 9U);
}

const Family* find(const std::vector<Family>& families, const std::string& name) {
    for (const Family& family : families)
        if (family.name == name) return &family;
    return nullptr;
}

TEST(Families, SeriesOfProcessesAndQueuePairsAreBounded) {
    std::vector<StateReading> readings;
    for (std::uint32_t pid = 1; pid <= 50; ++pid) {
        readings.push_back(reading(pid, 1));
        readings.back().snapshot.qps.resize(20);
    }
    Ledger ledger(5);
    ledger.take(readings);
    const std::vector<DeviceInfo> none;
    const auto families = make_families({none, readings, ledger, 7});
    EXPECT_EQ(find(families, "feroce_process_sent_bytes")->samples.size(), 6U);
    EXPECT_EQ(find(families, "feroce_qp_sent_packets")->samples.size(), 7U);
    const Family* all = find(families, "feroce_queue_pairs");
    ASSERT_EQ(all->samples.size(), 1U);
    EXPECT_EQ(all->samples[0].value, "1000");
}

TEST(Families, ErrorsHaveStatusAndReason) {
    StateReading one = reading(1, 1);
    one.snapshot.errors = {{"IBV_WC_REM_ACCESS_ERR", "peer_refused", false, 3},
                           {"IBV_WC_WR_FLUSH_ERR", "moved_to_error", false, 2},
                           {"IBV_WC_REM_ACCESS_ERR", "remote_key", true, 5}};
    Ledger ledger(5);
    ledger.take({one});
    const std::vector<DeviceInfo> none;
    const std::vector<StateReading> readings{one};
    const auto families = make_families({none, readings, ledger, 0});
    const Family* errors = find(families, "feroce_errors");
    ASSERT_EQ(errors->samples.size(), 2U);
    EXPECT_EQ(errors->samples[0].labels, (Labels{{"device", "feroce_lo"},
                                                 {"port", "1"},
                                                 {"status", "IBV_WC_REM_ACCESS_ERR"},
                                                 {"reason", "peer_refused"}}));
    EXPECT_EQ(errors->samples[0].value, "3");
    EXPECT_EQ(find(families, "feroce_refusals")->samples.at(0).value, "5");
    EXPECT_EQ(find(families, "node_infiniband_req_cqes_errors")->samples.at(0).value, "3");
    EXPECT_EQ(find(families, "node_infiniband_req_remote_access_errors")->samples.at(0).value, "3");
    EXPECT_EQ(find(families, "rdma_resp_remote_access_errors")->samples.at(0).value, "5");
}

}  // namespace
}  // namespace feroce::cli::ledger_test
