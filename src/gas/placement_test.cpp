#include "feroce/gas/placement.hpp"

#include <gtest/gtest.h>

#include <map>

namespace feroce::gas {
namespace {

std::map<std::string, std::string> variables;

feroce::Result<Placement> place(std::map<std::string, std::string> environment) {
    variables = std::move(environment);
    return placement_from_environment([](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

TEST(Placement, AProcessOnItsOwnIsAClusterOfOne) {
    const auto out = place({});
    ASSERT_TRUE(out);
    EXPECT_EQ(out->rank, 0);
    EXPECT_EQ(out->size, 1);
}

TEST(Placement, LaunchersAreUnderstood) {
    for (const auto& [rank, size] :
         std::map<std::string, std::string>{{"FEROCE_GAS_RANK", "FEROCE_GAS_SIZE"},
                                            {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"PMI_RANK", "PMI_SIZE"},
                                            {"RANK", "WORLD_SIZE"},
                                            {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
                                            {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                            {"JOB_COMPLETION_INDEX", "FEROCE_GAS_SIZE"},
                                            {"SLURM_PROCID", "SLURM_NTASKS"}}) {
        const auto out = place({{rank, "2"}, {size, "5"}, {"FEROCE_GAS_SEED", "10.0.0.1"}});
        ASSERT_TRUE(out) << rank;
        EXPECT_EQ(out->rank, 2);
        EXPECT_EQ(out->size, 5);
    }
}

TEST(Placement, OursComesBeforeTheLaunchers) {
    const auto out = place({{"FEROCE_GAS_RANK", "1"},
                            {"FEROCE_GAS_SIZE", "2"},
                            {"SLURM_PROCID", "7"},
                            {"SLURM_NTASKS", "8"},
                            {"FEROCE_GAS_SEED", "10.0.0.1:99"}});
    ASSERT_TRUE(out);
    EXPECT_EQ(out->rank, 1);
    EXPECT_EQ(out->size, 2);
}

TEST(Placement, TheInnermostLauncherCounts) {
    // torchrun on each of two machines, started by srun.
    const auto out = place({{"SLURM_PROCID", "1"},
                            {"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_STEP_NODELIST", "n[1-2]"},
                            {"TORCHELASTIC_RUN_ID", "x"},
                            {"RANK", "13"},
                            {"WORLD_SIZE", "16"},
                            {"MASTER_ADDR", "n1"},
                            {"MASTER_PORT", "29400"}});
    ASSERT_TRUE(out) << out.error().why;
    EXPECT_EQ(out->rank, 13);
    EXPECT_EQ(out->size, 16);
    EXPECT_EQ(out->seed, "n1");
    EXPECT_EQ(out->port, 29400);
}

TEST(Placement, SlurmTellsTheFirstMachine) {
    for (const auto& [list, first] :
         std::map<std::string, std::string>{{"n1", "n1"},
                                            {"n1,n2", "n1"},
                                            {"n[1-3]", "n1"},
                                            {"rack[02,07-09]-ib,login", "rack02-ib"},
                                            {"gpu[001,003]", "gpu001"}}) {
        const auto out = place({{"SLURM_PROCID", "1"},
                                {"SLURM_STEP_NUM_TASKS", "2"},
                                {"SLURM_NTASKS", "8"},
                                {"SLURM_STEP_NODELIST", list}});
        ASSERT_TRUE(out) << out.error().why;
        EXPECT_EQ(out->size, 2);
        EXPECT_EQ(out->seed, first);
    }
}

TEST(Placement, PodsAreNumbered) {
    const std::map<std::string, std::string> pod{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                                 {"HOSTNAME", "my-app-3"},
                                                 {"FEROCE_GAS_SIZE", "5"},
                                                 {"FEROCE_GAS_SEED", "my-app-0.my-app"}};
    const auto out = place(pod);
    ASSERT_TRUE(out) << out.error().why;
    EXPECT_EQ(out->rank, 3);
    EXPECT_EQ(out->seed, "my-app-0.my-app");
    // One of a Deployment has no number, and one that wants no cluster is on its own.
    auto other = pod;
    other["HOSTNAME"] = "my-app-7d4b9c-x2x4q";
    EXPECT_FALSE(place(other));
    // With setHostnameAsFQDN.
    auto full = pod;
    full["HOSTNAME"] = "my-app-4.my-app.default.svc.cluster.local";
    ASSERT_TRUE(place(full));
    EXPECT_EQ(place(full)->rank, 4);
    // A set whose manifest lacks the number of its pods was a cluster of one for each of them.
    auto unsized = pod;
    unsized.erase("FEROCE_GAS_SIZE");
    ASSERT_FALSE(place(unsized));
    EXPECT_NE(std::string(place(unsized).error().why).find("FEROCE_GAS_SIZE"), std::string::npos);
    const auto alone = place({{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"HOSTNAME", "my-app-3"}});
    ASSERT_TRUE(alone);
    EXPECT_EQ(alone->size, 1);
}

// Each of these was a cluster of one for each of its processes.
TEST(Placement, AClusterThatIsNotUnderstoodIsRefused) {
    using Environment = std::map<std::string, std::string>;
    for (const Environment& environment :
         {Environment{{"PMIX_RANK", "1"}}, Environment{{"JOB_COMPLETION_INDEX", "0"}},
          Environment{{"RANK", "0"}}, Environment{{"WORLD_SIZE", "4"}},
          Environment{{"SLURM_NTASKS", "4"}}, Environment{{"FEROCE_GAS_SIZE", "4"}},
          Environment{{"FEROCE_GAS_RANK", "0"}}, Environment{{"PALS_RANKID", "0"}}}) {
        const auto out = place(environment);
        ASSERT_FALSE(out) << environment.begin()->first;
        EXPECT_NE(std::string(out.error().why).find("FEROCE_GAS_RANK"), std::string::npos);
    }
    EXPECT_TRUE(place({{"WORLD_SIZE", "1"}}));
    EXPECT_TRUE(place({{"PMIX_RANK", "1"}, {"FEROCE_GAS_RANK", "0"}, {"FEROCE_GAS_SIZE", "1"}}));
}

TEST(Placement, SeedsHaveManyForms) {
    struct Case {
        const char* text;
        const char* address;
        std::uint16_t port;
    };
    for (const Case& c : {Case{"10.0.0.1", "10.0.0.1", 7474}, Case{"10.0.0.1:80", "10.0.0.1", 80},
                          Case{"fe80::1", "fe80::1", 7474}, Case{"[fe80::1]:80", "fe80::1", 80},
                          Case{"[fe80::1]", "fe80::1", 7474}, Case{"host:1", "host", 1}}) {
        const auto out = place({{"FEROCE_GAS_SEED", c.text}});
        ASSERT_TRUE(out) << c.text;
        EXPECT_EQ(out->seed, c.address);
        EXPECT_EQ(out->port, c.port);
    }
}

TEST(Placement, MistakesAreNamed) {
    const auto wrong = [](std::map<std::string, std::string> environment) {
        const auto out = place(std::move(environment));
        return out ? std::string("accepted") : std::string(out.error().why);
    };
    EXPECT_NE(wrong({{"PMI_RANK", "3"}, {"PMI_SIZE", "3"}}).find("smaller"), std::string::npos);
    EXPECT_NE(wrong({{"PMI_RANK", "x"}, {"PMI_SIZE", "3"}}).find("rank"), std::string::npos);
    EXPECT_NE(wrong({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).find("FEROCE_GAS_SEED=HOST"),
              std::string::npos);
    for (const char* seed : {":80", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:70000", "[fe80::1:80"})
        EXPECT_NE(wrong({{"FEROCE_GAS_SEED", seed}}).find("not HOST:PORT"), std::string::npos)
            << seed;
}

}  // namespace
}  // namespace feroce::gas
