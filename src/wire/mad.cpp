#include "wire/mad.hpp"

#include "wire/bth.hpp"
#include "wire/headers.hpp"

namespace feroce::wire {

const char* to_string(CmAttribute attribute) {
    switch (attribute) {
        case CmAttribute::Req:
            return "REQ";
        case CmAttribute::Mra:
            return "MRA";
        case CmAttribute::Rej:
            return "REJ";
        case CmAttribute::Rep:
            return "REP";
        case CmAttribute::Rtu:
            return "RTU";
        case CmAttribute::Dreq:
            return "DREQ";
        case CmAttribute::Drep:
            return "DREP";
        case CmAttribute::SidrReq:
            return "SIDR_REQ";
        case CmAttribute::SidrRep:
            return "SIDR_REP";
        case CmAttribute::Lap:
            return "LAP";
        case CmAttribute::Apr:
            return "APR";
        case CmAttribute::Alive:
            return "ALIVE";
    }
    return "?";
}

std::optional<CmMad> parse_cm_mad(ByteView mad) {
    if (mad.size() != kMadSize) return std::nullopt;
    const auto header = MadHeader::parse(mad.first<MadHeader::kSize>());
    const MadHeader expected;
    if (header.base_version != expected.base_version ||
        header.management_class != expected.management_class ||
        header.class_version != expected.class_version || header.method != expected.method)
        return std::nullopt;
    const auto attribute = static_cast<CmAttribute>(header.attribute);
    if (to_string(attribute)[0] == '?') return std::nullopt;
    return CmMad{.attribute = attribute,
                 .transaction = header.transaction,
                 .message = mad.last<kMadSize - MadHeader::kSize>()};
}

SlotNumber steered_slot(ByteView packet) {
    constexpr std::size_t kHeaders = Bth::kSize + Deth::kSize;
    constexpr std::size_t kLocalId = kHeaders + MadHeader::kSize;
    constexpr std::size_t kRemoteId = kLocalId + 4;
    if (packet.size() < Bth::kSize) return 0;
    const Qpn qpn = Bth::parse(packet.first<Bth::kSize>()).destination;
    if (qpn != kGeneralServicesQpn) return slot_of(qpn);
    if (packet.size() < kRemoteId + 4) return 0;
    const auto header = MadHeader::parse(packet.subspan<kHeaders, MadHeader::kSize>());
    const auto attribute = static_cast<CmAttribute>(header.attribute);
    if (attribute == CmAttribute::Req || attribute == CmAttribute::SidrReq) return 0;
    const std::size_t place = attribute == CmAttribute::SidrRep ? kLocalId : kRemoteId;
    const std::uint32_t id = load_be32(packet.subspan(place).first<4>());
    return static_cast<SlotNumber>(id >> kCommIdLowBits);
}

}  // namespace feroce::wire
