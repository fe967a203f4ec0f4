#include "feroce/gas/placement.hpp"

#include <gtest/gtest.h>

#include <map>

namespace feroce::gas {
namespace {

std::map<std::string, std::string> variables;

Result<Placement> place(std::map<std::string, std::string> environment) {
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
    EXPECT_NE(wrong({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).find("FEROCE_GAS_SEED=ADDRESS"),
              std::string::npos);
    for (const char* seed : {":80", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:70000", "[fe80::1:80"})
        EXPECT_NE(wrong({{"FEROCE_GAS_SEED", seed}}).find("not ADDRESS:PORT"), std::string::npos)
            << seed;
}

}  // namespace
}  // namespace feroce::gas
