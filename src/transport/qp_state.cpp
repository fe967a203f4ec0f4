// The table states what the Linux kernel's ib_core enforces, so that a program that passes here
// passes on hardware, and one that is refused there is refused here. Notably RESET to ERR is not a
// transition, and every other state reaches both RESET and ERR without any attribute.
#include "transport/qp_state.hpp"

#include <array>
#include <cerrno>
#include <cstddef>

#include "base/assert.hpp"

namespace feroce::transport {

namespace {

using enum Attribute;

constexpr AttributeMask operator|(AttributeMask a, AttributeMask b) {
    return {a.raw | b.raw};
}

template <class... Attributes>
constexpr AttributeMask mask(Attributes... attributes) {
    return {(0U | ... | static_cast<std::uint32_t>(attributes))};
}

constexpr std::uint8_t kRc = 1, kUc = 2, kUd = 4, kInitiator = 8, kTarget = 16;
constexpr std::uint8_t kConnected = kRc | kUc | kInitiator | kTarget;

constexpr std::uint8_t bit_of(QpType type) {
    switch (type) {
        case QpType::Rc:
            return kRc;
        case QpType::Uc:
            return kUc;
        case QpType::Ud:
            return kUd;
        case QpType::XrcInitiator:
            return kInitiator;
        case QpType::XrcTarget:
            return kTarget;
    }
    ASSERT(false);
}

// What a type brings to a transition; the rows that match a type are joined.
struct Row {
    QpState from;
    QpState to;
    std::uint8_t types;
    AttributeMask required;
    AttributeMask optional;
};

constexpr AttributeMask kConnectedInit = mask(PkeyIndex, Port, AccessFlags);
constexpr AttributeMask kDatagramInit = mask(PkeyIndex, Port, Qkey);
constexpr AttributeMask kRoute = mask(AddressVector, PathMtu, DestinationQpn, ReceivePsn);
constexpr AttributeMask kAnswering = mask(MaxDestReadAtomic, MinRnrTimer);
constexpr AttributeMask kAsking = mask(RetryCount, RnrRetry, MaxReadAtomic);
constexpr AttributeMask kRunning =
    mask(CurrentState, AlternatePath, AccessFlags, PathMigrationState);
constexpr AttributeMask kDrained =
    mask(AddressVector, AlternatePath, AccessFlags, PkeyIndex, PathMigrationState);

constexpr std::array kRows{
    Row{QpState::Reset, QpState::Init, kConnected, kConnectedInit, {}},
    Row{QpState::Reset, QpState::Init, kUd, kDatagramInit, {}},

    Row{QpState::Init, QpState::Init, kConnected, {}, kConnectedInit},
    Row{QpState::Init, QpState::Init, kUd, {}, kDatagramInit},

    Row{QpState::Init, QpState::Rtr, kConnected, kRoute,
        mask(AlternatePath, AccessFlags, PkeyIndex)},
    Row{QpState::Init, QpState::Rtr, kRc | kTarget, kAnswering, {}},
    Row{QpState::Init, QpState::Rtr, kUd, {}, mask(PkeyIndex, Qkey)},

    Row{QpState::Rtr, QpState::Rts, kConnected, mask(SendPsn), kRunning},
    Row{QpState::Rtr, QpState::Rts, kRc | kInitiator, kAsking, {}},
    Row{QpState::Rtr, QpState::Rts, kRc | kInitiator | kTarget, mask(Timeout), {}},
    Row{QpState::Rtr, QpState::Rts, kRc | kTarget, {}, mask(MinRnrTimer)},
    Row{QpState::Rtr, QpState::Rts, kUd, mask(SendPsn), mask(CurrentState, Qkey)},

    Row{QpState::Rts, QpState::Rts, kConnected, {}, kRunning},
    Row{QpState::Rts, QpState::Rts, kRc | kTarget, {}, mask(MinRnrTimer)},
    Row{QpState::Rts, QpState::Rts, kUd, {}, mask(CurrentState, Qkey)},

    Row{QpState::Rts, QpState::Sqd, kConnected | kUd, {}, mask(DrainNotify)},

    Row{QpState::Sqd, QpState::Sqd, kConnected, {}, kDrained},
    Row{QpState::Sqd, QpState::Sqd, kRc | kInitiator, {}, kAsking},
    Row{QpState::Sqd, QpState::Sqd, kRc | kTarget, {}, kAnswering},
    Row{QpState::Sqd, QpState::Sqd, kRc | kInitiator | kTarget, {}, mask(Port, Timeout)},
    Row{QpState::Sqd, QpState::Sqd, kUd, {}, mask(PkeyIndex, Qkey)},

    Row{QpState::Sqd, QpState::Rts, kConnected, {}, kRunning},
    Row{QpState::Sqd, QpState::Rts, kRc | kTarget, {}, mask(MinRnrTimer)},
    Row{QpState::Sqd, QpState::Rts, kUd, {}, mask(CurrentState, Qkey)},

    // Only unreliable queue pairs ever get into SQE, but the kernel lets any of them leave it.
    Row{QpState::Sqe, QpState::Rts, kRc | kInitiator | kTarget, {}, {}},
    Row{QpState::Sqe, QpState::Rts, kUc, {}, mask(CurrentState, AccessFlags)},
    Row{QpState::Sqe, QpState::Rts, kUd, {}, mask(CurrentState, Qkey)},
};

constexpr std::size_t kSentenceBytes = 96;
using Sentence = std::array<char, kSentenceBytes>;

constexpr Sentence join(const char* name, const char* tail) {
    Sentence sentence{};
    std::size_t at = 0;
    for (const char* from : {name, tail})
        for (; *from != '\0'; ++from) sentence[at++] = *from;
    return sentence;
}

struct AttributeText {
    Attribute attribute;
    const char* name;
    Sentence missing;
    Sentence refused;
};

constexpr AttributeText words(Attribute attribute, const char* name) {
    return {attribute, name, join(name, " is required for this transition but was not given"),
            join(name, " may not be given for this transition and queue pair type")};
}

constexpr std::array kTexts{
    words(State, "IBV_QP_STATE"),
    words(CurrentState, "IBV_QP_CUR_STATE"),
    words(DrainNotify, "IBV_QP_EN_SQD_ASYNC_NOTIFY"),
    words(AccessFlags, "IBV_QP_ACCESS_FLAGS"),
    words(PkeyIndex, "IBV_QP_PKEY_INDEX"),
    words(Port, "IBV_QP_PORT"),
    words(Qkey, "IBV_QP_QKEY"),
    words(AddressVector, "IBV_QP_AV"),
    words(PathMtu, "IBV_QP_PATH_MTU"),
    words(Timeout, "IBV_QP_TIMEOUT"),
    words(RetryCount, "IBV_QP_RETRY_CNT"),
    words(RnrRetry, "IBV_QP_RNR_RETRY"),
    words(ReceivePsn, "IBV_QP_RQ_PSN"),
    words(MaxReadAtomic, "IBV_QP_MAX_QP_RD_ATOMIC"),
    words(AlternatePath, "IBV_QP_ALT_PATH"),
    words(MinRnrTimer, "IBV_QP_MIN_RNR_TIMER"),
    words(SendPsn, "IBV_QP_SQ_PSN"),
    words(MaxDestReadAtomic, "IBV_QP_MAX_DEST_RD_ATOMIC"),
    words(PathMigrationState, "IBV_QP_PATH_MIG_STATE"),
    words(Capabilities, "IBV_QP_CAP"),
    words(DestinationQpn, "IBV_QP_DEST_QPN"),
    words(RateLimit, "IBV_QP_RATE_LIMIT"),
};

const char* name_of(QpType type) {
    switch (type) {
        case QpType::Rc:
            return "RC";
        case QpType::Uc:
            return "UC";
        case QpType::Ud:
            return "UD";
        case QpType::XrcInitiator:
            return "XRC_SEND";
        case QpType::XrcTarget:
            return "XRC_RECV";
    }
    ASSERT(false);
}

}  // namespace

std::string names_of(AttributeMask attributes) {
    std::string names;
    for (const AttributeText& text : kTexts)
        if (attributes.has(text.attribute)) names += std::string(" ") + text.name;
    return names.empty() ? " -" : names;
}

const char* name_of(QpState state) {
    constexpr std::array kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return kNames[static_cast<std::size_t>(state)];
}

Transition transition(QpType type, QpState from, QpState to) {
    if (to == QpState::Reset) return {true, {}, {}};
    if (to == QpState::Err) return {from != QpState::Reset, {}, {}};
    Transition found;
    for (const Row& row : kRows) {
        if (row.from != from || row.to != to || (row.types & bit_of(type)) == 0) continue;
        found.allowed = true;
        found.required = found.required | row.required;
        found.optional = found.optional | row.optional;
    }
    return found;
}

Result<void> check_modify(QpType type, QpState from, QpState to, AttributeMask given) {
    const Transition rule = transition(type, from, to);
    if (!rule.allowed) return Error{EINVAL, "the queue pair cannot go from its state to that one"};
    // Right calls are told so at once; the rest finds a sentence for the others.
    const std::uint32_t besides = given.raw & ~static_cast<std::uint32_t>(State);
    const std::uint32_t fitting = (rule.required | rule.optional).raw;
    if ((rule.required.raw & ~besides) == 0 && (besides & ~fitting) == 0) return {};
    std::uint32_t unknown = given.raw;
    for (const AttributeText& text : kTexts) {
        const bool is_given = given.has(text.attribute);
        unknown &= ~static_cast<std::uint32_t>(text.attribute);
        if (text.attribute == State) continue;
        if (rule.required.has(text.attribute)) {
            if (!is_given) return Error{EINVAL, text.missing.data()};
        } else if (is_given && !rule.optional.has(text.attribute)) {
            return Error{EINVAL, text.refused.data()};
        }
    }
    if (unknown != 0) return Error{EINVAL, "the attribute mask has a bit that means nothing"};
    return {};
}

void apply(const QpAttributes& from, AttributeMask given, QpAttributes& to) {
    const auto copy = [&](Attribute attribute, auto QpAttributes::*member) {
        if (given.has(attribute)) to.*member = from.*member;
    };
    copy(State, &QpAttributes::state);
    // CurrentState is the caller's claim about the state before, not something to keep.
    to.current_state = to.state;
    copy(DrainNotify, &QpAttributes::drain_notify);
    copy(AccessFlags, &QpAttributes::access);
    copy(PkeyIndex, &QpAttributes::pkey_index);
    copy(Port, &QpAttributes::port);
    copy(Attribute::Qkey, &QpAttributes::qkey);
    copy(Attribute::AddressVector, &QpAttributes::address);
    copy(PathMtu, &QpAttributes::path_mtu);
    copy(Timeout, &QpAttributes::timeout);
    copy(RetryCount, &QpAttributes::retry_count);
    copy(RnrRetry, &QpAttributes::rnr_retry);
    copy(ReceivePsn, &QpAttributes::receive_psn);
    copy(MaxReadAtomic, &QpAttributes::read_atomic_max);
    copy(AlternatePath, &QpAttributes::alternate_address);
    copy(AlternatePath, &QpAttributes::alternate_pkey_index);
    copy(AlternatePath, &QpAttributes::alternate_port);
    copy(AlternatePath, &QpAttributes::alternate_timeout);
    copy(MinRnrTimer, &QpAttributes::min_rnr_timer);
    copy(SendPsn, &QpAttributes::send_psn);
    copy(MaxDestReadAtomic, &QpAttributes::dest_read_atomic_max);
    copy(PathMigrationState, &QpAttributes::path_migration_state);
    copy(DestinationQpn, &QpAttributes::destination_qpn);
}

std::string print_table() {
    constexpr std::array kTypes{QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcInitiator,
                                QpType::XrcTarget};
    constexpr auto kStates = static_cast<std::uint8_t>(QpState::Err) + 1;
    std::string table;
    for (const QpType type : kTypes) {
        for (int pair = 0; pair < kStates * kStates; ++pair) {
            const auto from = static_cast<QpState>(pair / kStates);
            const auto to = static_cast<QpState>(pair % kStates);
            const Transition rule = transition(type, from, to);
            if (!rule.allowed) continue;
            table += std::string(name_of(type)) + " " + name_of(from) + " " + name_of(to) +
                     ": required" + names_of(rule.required) + "; optional" +
                     names_of(rule.optional) + "\n";
        }
    }
    return table;
}

}  // namespace feroce::transport
