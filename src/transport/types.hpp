// The words of a queue pair: types, states, attributes, addresses. Numbers equal libibverbs' where
// it has the same enum, so that the C shims convert by cast.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/gid.hpp"
#include "base/ids.hpp"
#include "base/psn.hpp"
#include "base/time.hpp"
#include "mem/access.hpp"

namespace feroce::transport {

enum class QpType : std::uint8_t { Rc = 2, Uc = 3, Ud = 4, XrcInitiator = 9, XrcTarget = 10 };

enum class QpState : std::uint8_t { Reset, Init, Rtr, Rts, Sqd, Sqe, Err };

constexpr bool receives(QpState state) {  // Packets are taken.
    return state == QpState::Rtr || state == QpState::Rts || state == QpState::Sqd ||
           state == QpState::Sqe;
}

constexpr std::uint32_t packets_for(std::uint32_t bytes, std::uint32_t path_mtu) {
    return bytes == 0 ? 1 : (bytes - 1) / path_mtu + 1;
}

// Where packets go. `flow` only picks the UDP source port, so that one conversation keeps one port.
struct Path {
    Gid source;
    Gid destination;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    std::uint16_t flow = 0;

    friend bool operator==(const Path&, const Path&) = default;
};

// ibv_ah_attr as far as Ethernet has it; kept whole so that a query gives back what was set.
struct AddressVector {
    Gid destination;
    Gid source;  // What source_gid_index named when the vector was made.
    std::uint32_t flow_label = 0;
    std::uint8_t source_gid_index = 0;
    std::uint8_t hop_limit = 64;
    std::uint8_t traffic_class = 0;
    std::uint8_t service_level = 0;
    std::uint8_t static_rate = 0;
    std::uint8_t port = 1;
    bool global = true;
};

// ibv_qp_attr. Which members a call sets is said by an AttributeMask (qp_state.hpp).
struct QpAttributes {
    // What packets ask for, in one cache line.
    QpState state = QpState::Reset;
    std::uint8_t timeout = 0;  // 4.096 us * 2^timeout; 0 waits for ever.
    std::uint8_t retry_count = 0;
    std::uint8_t rnr_retry = 0;  // 7 retries for ever.
    std::uint8_t min_rnr_timer = 0;
    std::uint8_t dest_read_atomic_max = 0;  // As target.
    std::uint8_t read_atomic_max = 0;       // As initiator.
    bool drain_notify = false;
    std::uint32_t path_mtu = 1024;  // Bytes: 256, 512, 1024, 2048 or 4096.
    Qpn destination_qpn;
    mem::AccessSet access;
    AddressVector address;
    // The rest.
    Qkey qkey;
    QpState current_state = QpState::Reset;
    Psn receive_psn;
    Psn send_psn;
    std::uint16_t pkey_index = 0;
    std::uint16_t alternate_pkey_index = 0;
    std::uint8_t port = 1;
    std::uint8_t alternate_port = 0;
    std::uint8_t alternate_timeout = 0;
    std::uint8_t path_migration_state = 0;
    AddressVector alternate_address;
};
static_assert(offsetof(QpAttributes, qkey) == 64);

struct QpCapabilities {
    std::uint32_t send_wr_max = 1;
    std::uint32_t receive_wr_max = 1;
    std::uint32_t send_sge_max = 1;
    std::uint32_t receive_sge_max = 1;
    std::uint32_t inline_max = 0;
};

}  // namespace feroce::transport
