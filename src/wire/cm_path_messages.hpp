// The rest of the connection manager's messages: alternate paths (LAP, APR), which we refuse, and
// service id resolution (SIDR), by which datagram users learn a queue pair. See cm_messages.hpp.
#pragma once

#include "wire/cm_messages.hpp"

namespace feroce::wire {

// Asks to load an alternate path.
struct CmLap {
    CommId local_id{};
    CommId remote_id{};
    Qpn remote_qpn{};
    std::uint8_t remote_response_timeout = 0;  // 5 bits.
    CmPath alternate = CmPath::none();         // Laid out unlike in a REQ.
    PrivateData<168> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Lap;
    static CmLap parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmLap&, const CmLap&) = default;
};

enum class AprStatus : std::uint8_t {
    Accepted = 0,
    InvalidCommId = 1,
    Unsupported = 2,
    Rejected = 3,
    Redirect = 4,
    IsCurrentPath = 5,
    InvalidQpn = 6,
    InvalidLid = 7,
    InvalidGid = 8,
    InvalidFlowLabel = 9,
    InvalidTrafficClass = 10,
    InvalidHopLimit = 11,
    InvalidPacketRate = 12,
    InvalidServiceLevel = 13
};

struct CmApr {
    CommId local_id{};
    CommId remote_id{};
    std::uint8_t additional_info_size = 0;
    AprStatus status{};
    AdditionalInfo additional_info{};
    PrivateData<148> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::Apr;
    static CmApr parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmApr&, const CmApr&) = default;
};

struct CmSidrReq {
    CommId request_id{};
    Pkey pkey = kDefaultPkey;
    ServiceId service_id{};
    PrivateData<216> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::SidrReq;
    static CmSidrReq parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmSidrReq&, const CmSidrReq&) = default;
};

enum class SidrStatus : std::uint8_t {
    Success = 0,
    UnsupportedService = 1,
    Rejected = 2,
    NoQp = 3,
    Redirect = 4,
    UnsupportedVersion = 5
};

struct CmSidrRep {
    CommId request_id{};  // The requester's: there is no other id.
    SidrStatus status{};
    std::uint8_t additional_info_size = 0;
    Qpn qpn{};
    ServiceId service_id{};
    Qkey qkey{};
    AdditionalInfo additional_info{};
    PrivateData<136> private_data{};

    static constexpr CmAttribute kAttribute = CmAttribute::SidrRep;
    static CmSidrRep parse(CmView b);
    void emit(CmSpan b) const;
    friend bool operator==(const CmSidrRep&, const CmSidrRep&) = default;
};

// A whole MAD around a message.
template <class Message>
MadBytes make_cm_mad(std::uint64_t transaction, const Message& message) {
    MadBytes mad{};
    const std::span<std::byte, kMadSize> bytes(mad);
    const MadHeader header{.transaction = transaction,
                           .attribute = static_cast<std::uint16_t>(Message::kAttribute)};
    header.emit(bytes.first<MadHeader::kSize>());
    message.emit(bytes.last<kCmMessageSize>());
    return mad;
}

}  // namespace feroce::wire
