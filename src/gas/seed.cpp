#include "gas/seed.hpp"

#include <netdb.h>

#include <cerrno>
#include <memory>
#include <string>

namespace feroce::gas {

rdma::Result<rdma::Address> seed_address(const Placement& placement) {
    const rdma::Address numeric(placement.seed);
    if (numeric.check()) return numeric.with_port(placement.port);
    addrinfo hints{};
    hints.ai_flags = AI_ADDRCONFIG;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* first = nullptr;
    const int code = ::getaddrinfo(placement.seed.c_str(), nullptr, &hints, &first);
    if (code != 0)
        return rdma::Error(EAGAIN, "the name of the first node's machine, " + placement.seed +
                                       ", is not known here: " + ::gai_strerror(code));
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(first, ::freeaddrinfo);
    return rdma::Address(*first->ai_addr).with_port(placement.port);
}

}  // namespace feroce::gas
