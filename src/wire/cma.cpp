#include "wire/cma.hpp"

#include "wire/cm_path_messages.hpp"

namespace feroce::wire {

Gid named_address(const Gid& source, const Gid& destination, const CmMad& request) {
    // A message from another machine cannot bear our address, so only we ourselves get beyond this.
    if (source != destination) return destination;
    CmaHeader header;
    if (request.attribute == CmAttribute::Req) {
        const CmReq req = CmReq::parse(request.message);
        header = CmaHeader::parse(std::span(req.private_data).first<CmaHeader::kSize>());
    } else {
        const CmSidrReq req = CmSidrReq::parse(request.message);
        header = CmaHeader::parse(std::span(req.private_data).first<CmaHeader::kSize>());
    }
    const bool loopback = header.valid() && is_loopback(header.destination());
    return loopback ? header.destination() : destination;
}

}  // namespace feroce::wire
