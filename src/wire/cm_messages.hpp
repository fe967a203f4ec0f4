// The messages of the InfiniBand connection manager as values of 232 bytes, in the order of their
// fields on the wire. Reserved bits are sent as zero and ignored on receipt, as IBTA demands, so
// emit is the inverse of parse for what a correct peer sends. Names are as seen by the sender:
// local_id is the sender's communication id and remote_id the receiver's.
#pragma once

#include "base/gid.hpp"
#include "base/psn.hpp"
#include "wire/mad.hpp"

namespace feroce::wire {

inline constexpr std::size_t kCmMessageSize = kMadSize - MadHeader::kSize;

using CmView = std::span<const std::byte, kCmMessageSize>;
using CmSpan = std::span<std::byte, kCmMessageSize>;
using CommId = Id<struct CommIdTag>;
using ServiceId = Id<struct ServiceIdTag, std::uint64_t>;

template <std::size_t kBytes>
using PrivateData = std::array<std::byte, kBytes>;

inline constexpr std::size_t kAdditionalInfoSize = 72;
using AdditionalInfo = std::array<std::byte, kAdditionalInfoSize>;

// Why a connection was refused. The numbers are what rdma_cm events show as their status.
enum class RejectReason : std::uint16_t {
    NoQp = 1,
    NoEec = 2,
    NoResources = 3,
    Timeout = 4,
    UnsupportedRequest = 5,
    InvalidCommId = 6,
    InvalidCommInstance = 7,
    InvalidServiceId = 8,
    InvalidTransportType = 9,
    StaleConnection = 10,
    RdcDoesNotExist = 11,
    InvalidPrimaryGid = 12,
    InvalidPrimaryLid = 13,
    InvalidPrimarySl = 14,
    InvalidPrimaryTrafficClass = 15,
    InvalidPrimaryHopLimit = 16,
    InvalidPrimaryPacketRate = 17,
    InvalidAlternateGid = 18,
    InvalidAlternateLid = 19,
    InvalidAlternateSl = 20,
    InvalidAlternateTrafficClass = 21,
    InvalidAlternateHopLimit = 22,
    InvalidAlternatePacketRate = 23,
    PortAndCmRedirect = 24,
    PortRedirect = 25,
    InvalidPathMtu = 26,
    InsufficientResponderResources = 27,
    ConsumerReject = 28,
    RnrRetryCountReject = 29,
    DuplicateLocalCommId = 30,
    InvalidClassVersion = 31,
    InvalidPrimaryFlowLabel = 32,
    InvalidAlternateFlowLabel = 33
};

const char* to_string(RejectReason reason);  // One clause for the log; "?" if not in the list.

// Which message an MRA or a REJ answers. For an MRA 2 means a LAP.
enum class CmAnswered : std::uint8_t { Req = 0, Rep = 1, Other = 2 };

enum class TransportType : std::uint8_t { Rc = 0, Uc = 1, Rd = 2, Extended = 3 };
inline constexpr std::uint8_t kExtendedTransportXrc = 1;

// A path as REQ carries it; a zero GID says that there is none.
struct CmPath {
    std::uint16_t local_lid = 0xffff;  // RoCE has no LIDs; the Linux kernel sends 0xffff.
    std::uint16_t remote_lid = 0xffff;
    Gid local_gid{};
    Gid remote_gid{};
    std::uint32_t flow_label = 0;  // 20 bits.
    std::uint8_t packet_rate = 0;  // 6 bits.
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    std::uint8_t service_level = 0;  // 4 bits.
    bool subnet_local = false;
    std::uint8_t local_ack_timeout = 0;  // 5 bits: 4.096 us << value.

    static constexpr CmPath none() { return {.local_lid = 0, .remote_lid = 0}; }
    friend constexpr bool operator==(const CmPath&, const CmPath&) = default;
};

struct CmReq {
    CommId local_id{};
    ServiceId service_id{};
    std::uint64_t local_ca_guid = 0;
    Qkey local_qkey{};
    Qpn local_qpn{};
    std::uint8_t responder_resources = 0;  // READs and atomics the sender serves at a time.
    std::uint32_t local_eecn = 0;
    std::uint8_t initiator_depth = 0;  // READs and atomics the sender has outstanding at a time.
    std::uint32_t remote_eecn = 0;
    std::uint8_t remote_response_timeout = 0;  // 5 bits: the receiver is to answer within.
    TransportType transport = TransportType::Rc;
    bool end_to_end_flow_control = false;
    Psn starting_psn{};
    std::uint8_t local_response_timeout = 0;  // 5 bits: the sender will answer within.
    std::uint8_t retry_count = 0;             // 3 bits.
    Pkey pkey = kDefaultPkey;
    std::uint8_t path_mtu = 0;  // 4 bits: 1 = 256 bytes to 5 = 4096.
    bool rdc_exists = false;
    std::uint8_t rnr_retry_count = 0;  // 3 bits.
    std::uint8_t max_cm_retries = 0;   // 4 bits.
    bool srq = false;
    std::uint8_t extended_transport = 0;  // 3 bits; meaningful with TransportType::Extended.
    CmPath primary{};
    CmPath alternate = CmPath::none();
    PrivateData<92> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Req;
    static CmReq parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmReq&, const CmReq&) = default;
};

struct CmMra {
    CommId local_id{};
    CommId remote_id{};
    CmAnswered answered = CmAnswered::Req;
    std::uint8_t service_timeout = 0;  // 5 bits: how much longer the answer may take.
    PrivateData<222> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Mra;
    static CmMra parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmMra&, const CmMra&) = default;
};

struct CmRej {
    CommId local_id{};   // 0 if the sender never made a connection of the request.
    CommId remote_id{};  // 0 if the sender never learned it: a REJ for a timeout.
    CmAnswered answered = CmAnswered::Req;
    std::uint8_t additional_info_size = 0;  // 7 bits.
    RejectReason reason{};
    AdditionalInfo additional_info{};
    PrivateData<148> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Rej;
    static CmRej parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmRej&, const CmRej&) = default;
};

struct CmRep {
    CommId local_id{};
    CommId remote_id{};
    Qkey local_qkey{};
    Qpn local_qpn{};
    std::uint32_t local_eecn = 0;
    Psn starting_psn{};
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t target_ack_delay = 0;   // 5 bits.
    std::uint8_t failover_accepted = 0;  // 2 bits; 1: no alternate paths here.
    bool end_to_end_flow_control = false;
    std::uint8_t rnr_retry_count = 0;  // 3 bits.
    bool srq = false;
    std::uint64_t local_ca_guid = 0;
    PrivateData<196> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Rep;
    static CmRep parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmRep&, const CmRep&) = default;
};

struct CmRtu {
    CommId local_id{};
    CommId remote_id{};
    PrivateData<224> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Rtu;
    static CmRtu parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmRtu&, const CmRtu&) = default;
};

struct CmDreq {
    CommId local_id{};
    CommId remote_id{};
    Qpn remote_qpn{};
    PrivateData<220> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Dreq;
    static CmDreq parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmDreq&, const CmDreq&) = default;
};

struct CmDrep {
    CommId local_id{};
    CommId remote_id{};
    PrivateData<224> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Drep;
    static CmDrep parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmDrep&, const CmDrep&) = default;
};

// Of our own: does the peer still have the connection? It answers the same with `answer` set, or
// DREP if it has not. The ids are where those of a DREQ are, so it is steered like one.
struct CmAlive {
    CommId local_id{};
    CommId remote_id{};
    bool answer = false;
    PrivateData<223> private_data{};  // Unused.

    static constexpr CmAttribute kAttribute = CmAttribute::Alive;
    static CmAlive parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmAlive&, const CmAlive&) = default;
};

}  // namespace feroce::wire
