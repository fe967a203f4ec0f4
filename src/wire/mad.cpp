#include "wire/mad.hpp"

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

}  // namespace feroce::wire
