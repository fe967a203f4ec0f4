// The queue pair state machine as a table: for each type and transition, which attributes must be
// and which may be given. modify_qp asks this table and nothing else; a golden file prints it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "transport/types.hpp"

namespace feroce::transport {

// Values of ibv_qp_attr_mask.
enum class Attribute : std::uint32_t {
    State = 1 << 0,
    CurrentState = 1 << 1,
    DrainNotify = 1 << 2,
    AccessFlags = 1 << 3,
    PkeyIndex = 1 << 4,
    Port = 1 << 5,
    Qkey = 1 << 6,
    AddressVector = 1 << 7,
    PathMtu = 1 << 8,
    Timeout = 1 << 9,
    RetryCount = 1 << 10,
    RnrRetry = 1 << 11,
    ReceivePsn = 1 << 12,
    MaxReadAtomic = 1 << 13,
    AlternatePath = 1 << 14,
    MinRnrTimer = 1 << 15,
    SendPsn = 1 << 16,
    MaxDestReadAtomic = 1 << 17,
    PathMigrationState = 1 << 18,
    Capabilities = 1 << 19,
    DestinationQpn = 1 << 20,
    RateLimit = 1 << 25,
};

struct AttributeMask {
    std::uint32_t raw = 0;
    constexpr bool has(Attribute a) const { return (raw & static_cast<std::uint32_t>(a)) != 0; }
};

struct Transition {
    bool allowed = false;
    AttributeMask required;  // Besides State.
    AttributeMask optional;
};

const char* name_of(QpState state);              // As people write it: "RTS".
std::string names_of(AttributeMask attributes);  // A blank before each; " -" if there is none.

Transition transition(QpType type, QpState from, QpState to);

// Checks a modify call against the table; the error names what is missing or not allowed.
Result<void> check_modify(QpType type, QpState from, QpState to, AttributeMask given);

// Copies the masked members from `from` to `to`, State included.
void apply(const QpAttributes& from, AttributeMask mask, QpAttributes& to);

// The table as text, one line for each type and allowed transition: what the golden file holds.
std::string print_table();

}  // namespace feroce::transport
