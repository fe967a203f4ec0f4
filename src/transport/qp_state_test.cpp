#include "transport/qp_state.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace feroce::transport {
namespace {

constexpr std::array kTypes{QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcInitiator,
                            QpType::XrcTarget};
constexpr std::uint32_t kState = static_cast<std::uint32_t>(Attribute::State);

struct Case {
    QpType type;
    QpState from;
    QpState to;
};

template <class Body>
void for_each_case(Body body) {
    for (const QpType type : kTypes)
        for (int from = 0; from <= static_cast<int>(QpState::Err); ++from)
            for (int to = 0; to <= static_cast<int>(QpState::Err); ++to)
                body(Case{type, static_cast<QpState>(from), static_cast<QpState>(to)});
}

bool accepts(const Case& c, std::uint32_t given) {
    return check_modify(c.type, c.from, c.to, {given}).has_value();
}

TEST(QpState, TableEqualsTheGoldenFile) {
    std::ifstream file(FEROCE_QP_STATE_GOLDEN);
    std::stringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(print_table(), golden.str());
}

TEST(QpState, EveryBitOfEveryTransitionIsJudgedByTheTable) {
    int allowed = 0;
    for_each_case([&](const Case& c) {
        const Transition rule = transition(c.type, c.from, c.to);
        if (!rule.allowed) {
            EXPECT_FALSE(accepts(c, kState));
            EXPECT_FALSE(accepts(c, kState | 0x1f'ffff));
            return;
        }
        ++allowed;
        const std::uint32_t required = rule.required.raw | kState;
        EXPECT_TRUE(accepts(c, required));
        EXPECT_TRUE(accepts(c, required | rule.optional.raw));
        for (int bit = 1; bit < 32; ++bit) {
            const std::uint32_t one = 1U << bit;
            const bool is_required = (rule.required.raw & one) != 0;
            const bool is_optional = (rule.optional.raw & one) != 0;
            EXPECT_EQ(accepts(c, required & ~one), !is_required);
            EXPECT_EQ(accepts(c, required | one), is_required || is_optional) << bit;
        }
    });
    EXPECT_EQ(allowed, 5 * 22);
}

TEST(QpState, ErrorsNameTheAttribute) {
    const auto why = [](QpState from, QpState to, std::uint32_t given) {
        const Result<void> result = check_modify(QpType::Rc, from, to, {given});
        EXPECT_FALSE(result.has_value());
        EXPECT_EQ(result.error().code, EINVAL);
        return std::string(result.error().why);
    };
    EXPECT_EQ(why(QpState::Reset, QpState::Init, kState),
              "IBV_QP_ACCESS_FLAGS is required for this transition but was not given");
    EXPECT_EQ(why(QpState::Rts, QpState::Rts, 1U << 6),
              "IBV_QP_QKEY may not be given for this transition and queue pair type");
    EXPECT_EQ(why(QpState::Reset, QpState::Rts, kState),
              "the queue pair cannot go from its state to that one");
    EXPECT_EQ(why(QpState::Rts, QpState::Rts, 1U << 30),
              "the attribute mask has a bit that means nothing");
}

// Facts of the kernel's table that are easy to get wrong.
TEST(QpState, ResetCannotFailAndAllElseCanBeReset) {
    for (const QpType type : kTypes) {
        EXPECT_FALSE(transition(type, QpState::Reset, QpState::Err).allowed);
        for (int from = 0; from <= static_cast<int>(QpState::Err); ++from)
            EXPECT_TRUE(transition(type, static_cast<QpState>(from), QpState::Reset).allowed);
        EXPECT_FALSE(transition(type, QpState::Rtr, QpState::Rtr).allowed);
        EXPECT_FALSE(transition(type, QpState::Rts, QpState::Sqe).allowed);
    }
}

TEST(QpState, ApplyCopiesOnlyWhatIsMasked) {
    QpAttributes from;
    from.state = QpState::Rtr;
    from.path_mtu = 4096;
    from.destination_qpn = Qpn{7};
    from.receive_psn = Psn(9);
    from.timeout = 14;
    QpAttributes to;
    to.timeout = 3;
    apply(from, {kState | 1U << 8 | 1U << 20}, to);
    EXPECT_EQ(to.state, QpState::Rtr);
    EXPECT_EQ(to.current_state, QpState::Rtr);
    EXPECT_EQ(to.path_mtu, 4096U);
    EXPECT_EQ(to.destination_qpn, Qpn{7});
    EXPECT_EQ(to.receive_psn, Psn(0));
    EXPECT_EQ(to.timeout, 3);
    apply(from, {1U << 9 | 1U << 12}, to);
    EXPECT_EQ(to.receive_psn, Psn(9));
    EXPECT_EQ(to.timeout, 14);
}

}  // namespace
}  // namespace feroce::transport
