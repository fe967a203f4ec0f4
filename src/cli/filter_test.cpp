#include "cli/filter.hpp"

#include <gtest/gtest.h>

namespace feroce::cli {
namespace {

using Words = std::vector<std::string>;

TEST(Filter, TakesIproutesGrammar) {
    const Filter plain(Words{}, {"qp"}, true);
    EXPECT_EQ(plain.object(), "");
    EXPECT_TRUE(plain.wants_device("feroce_lo"));

    const Filter full({"show", "qp", "link", "feroce_lo/1", "lqpn", "6", "state", "rts,err"},
                      {"qp"}, true);
    EXPECT_EQ(full.object(), "qp");
    EXPECT_TRUE(full.wants_device("feroce_lo"));
    EXPECT_FALSE(full.wants_device("feroce_eth0"));
    EXPECT_TRUE(full.wants(Json{{"lqpn", 6}, {"state", "RTS"}}));
    EXPECT_TRUE(full.wants(Json{{"lqpn", 6}, {"state", "ERR"}}));
    EXPECT_FALSE(full.wants(Json{{"lqpn", 6}, {"state", "INIT"}}));
    EXPECT_FALSE(full.wants(Json{{"lqpn", 66}, {"state", "RTS"}}));
    const Filter hex({"qp", "lqpn", "0x000010"}, {"qp"}, true);
    EXPECT_TRUE(hex.wants(Json{{"lqpn", 16U}}));
    EXPECT_FALSE(hex.wants(Json{{"lqpn", 10U}}));
    EXPECT_FALSE(full.wants(Json{{"state", "RTS"}}));

    const Filter pair({"show", "pid", "7"}, {"qp"}, true);
    EXPECT_TRUE(pair.wants_device("feroce_lo"));
    EXPECT_FALSE(pair.wants(Json{{"pid", 8}}));
    const Filter both({"feroce_lo", "pid", "7"}, {"qp"}, true);
    EXPECT_FALSE(both.wants_device("feroce_eth0"));
    EXPECT_TRUE(both.wants(Json{{"pid", 7}}));
}

TEST(Filter, SaysWhatIsWrong) {
    EXPECT_THROW(Filter({"qp", "link"}, {"qp"}, true), UsageError);
    EXPECT_THROW(Filter({"qp", "lqpn"}, {"qp"}, true), UsageError);
    EXPECT_THROW(Filter({"feroce_lo/2"}, {}, false), UsageError);
    EXPECT_THROW(Filter({"feroce_x"}, {}, false).check_device({}), UsageError);
    DeviceInfo device;
    device.name = "feroce_x";
    EXPECT_NO_THROW(Filter({"feroce_x/1"}, {}, false).check_device({device}));
}

}  // namespace
}  // namespace feroce::cli
