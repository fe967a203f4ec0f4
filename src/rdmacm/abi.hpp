// rdma-core's public headers, as those see them who implement them: exported, while the build hides
// everything else.
#pragma once

#include <cstdint>
#include <cstring>

#pragma GCC visibility push(default)
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

// Of releases 60 to 65, which Debian's headers are older than.
extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** out);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type type, int status, std::uint64_t value);
}
#pragma GCC visibility pop

namespace feroce::rdmacm {

// Their events: behind RDMA_CM_EVENT_TIMEWAIT_EXIT. ADDRINFO_ERROR lies between them; a name that
// is not found is told by the call itself here. Numbers, because C++ knows no values of an
// enumeration beyond those that its header has.
inline constexpr std::uint32_t kAddrinfoResolved = 16;
inline constexpr std::uint32_t kUserEvent = 18;
inline std::uint32_t number_of(const rdma_cm_event_type& type) {
    std::uint32_t number = 0;
    static_assert(sizeof type == sizeof number);
    std::memcpy(&number, &type, sizeof number);
    return number;
}
// Of ai_flags: ask InfiniBand's subnet administration.
inline constexpr int kFromSubnetAdministration = 0x10;

}  // namespace feroce::rdmacm
