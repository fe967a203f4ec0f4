// rdma-core's public headers, as those see them who implement them: exported, while the build hides
// everything else.
#pragma once

#include <cstdint>

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
// is not found is told by the call itself here.
inline constexpr auto kAddrinfoResolved = static_cast<rdma_cm_event_type>(16);
inline constexpr auto kUserEvent = static_cast<rdma_cm_event_type>(18);
// Of ai_flags: ask InfiniBand's subnet administration.
inline constexpr int kFromSubnetAdministration = 0x10;

}  // namespace feroce::rdmacm
