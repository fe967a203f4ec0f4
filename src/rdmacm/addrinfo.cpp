// rdma_getaddrinfo: the resolver of the C library, with port space and queue pair type added.
#include <netdb.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "process/undisturbed.hpp"
#include "rdmacm/events.hpp"
#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {
namespace {

struct FreeList {
    void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

sockaddr* copy_of(const sockaddr* address, socklen_t length) {
    auto* copy = static_cast<sockaddr*>(std::calloc(1, length));
    if (copy != nullptr) std::memcpy(copy, address, length);
    return copy;
}

addrinfo c_hints(const rdma_addrinfo& wanted) {
    addrinfo out{};
    if ((wanted.ai_flags & RAI_PASSIVE) != 0) out.ai_flags |= AI_PASSIVE;
    if ((wanted.ai_flags & RAI_NUMERICHOST) != 0) out.ai_flags |= AI_NUMERICHOST;
    if ((wanted.ai_flags & RAI_FAMILY) != 0) out.ai_family = wanted.ai_family;
    if (out.ai_family != AF_INET && out.ai_family != AF_INET6) out.ai_family = AF_UNSPEC;
    out.ai_socktype = wanted.ai_port_space == RDMA_PS_TCP ? SOCK_STREAM : SOCK_DGRAM;
    return out;
}

// A port space gives a type and the other way round.
void settle_kind(rdma_addrinfo& info) {
    if (info.ai_port_space == 0)
        info.ai_port_space = info.ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
    const bool datagrams = info.ai_port_space == RDMA_PS_UDP || info.ai_port_space == RDMA_PS_IPOIB;
    if (info.ai_qp_type == 0) info.ai_qp_type = datagrams ? IBV_QPT_UD : IBV_QPT_RC;
}

int set_address(rdma_addrinfo& info, const addrinfo& found) {
    const bool passive = (info.ai_flags & RAI_PASSIVE) != 0;
    sockaddr* copy = copy_of(found.ai_addr, found.ai_addrlen);
    if (copy == nullptr) return EAI_MEMORY;
    info.ai_family = found.ai_family;
    (passive ? info.ai_src_addr : info.ai_dst_addr) = copy;
    (passive ? info.ai_src_len : info.ai_dst_len) = found.ai_addrlen;
    if (found.ai_canonname != nullptr)
        (passive ? info.ai_src_canonname : info.ai_dst_canonname) = ::strdup(found.ai_canonname);
    return 0;
}

int fill(rdma_addrinfo& info, const char* node, const char* service, const rdma_addrinfo* hints) {
    if (node != nullptr || service != nullptr) {
        const addrinfo wanted = c_hints(info);
        addrinfo* found = nullptr;
        if (const int code = ::getaddrinfo(node, service, &wanted, &found); code != 0) return code;
        const std::unique_ptr<addrinfo, FreeList> list(found);
        if (const int code = set_address(info, *found); code != 0) return code;
    }
    if (hints == nullptr) return 0;
    if (info.ai_src_addr == nullptr && hints->ai_src_len > 0) {
        info.ai_src_addr = copy_of(hints->ai_src_addr, hints->ai_src_len);
        info.ai_src_len = hints->ai_src_len;
    }
    if (info.ai_dst_addr == nullptr && hints->ai_dst_len > 0) {
        info.ai_dst_addr = copy_of(hints->ai_dst_addr, hints->ai_dst_len);
        info.ai_dst_len = hints->ai_dst_len;
    }
    return 0;
}

// What a code of rdma_getaddrinfo is as an errno.
int code_of(int failure) {
    switch (failure) {
        case -1:
        case EAI_SYSTEM:
            return errno;
        case EAI_MEMORY:
            return ENOMEM;
        case EAI_AGAIN:
            return EAGAIN;
        default:
            return ENODATA;
    }
}

struct FreeAddresses {
    void operator()(rdma_addrinfo* list) const { rdma_freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<rdma_addrinfo, FreeAddresses>;

constexpr char kResolveNames[] = "rdma_resolve_addrinfo";

int check_resolving_names(CmId& id, const rdma_addrinfo* hints) {
    if (!is_current(*id.library))
        return fail(kResolveNames, {ENODEV, "the id is of the process that forked"});
    if (hints != nullptr && (hints->ai_flags & kFromSubnetAdministration) != 0)
        return fail(kResolveNames, {ENOTSUP, "RoCE has no subnet administration to ask"});
    const std::lock_guard held(id.library->mutex);
    if (id.resolved_names != nullptr)
        return fail(kResolveNames, {EBUSY, "an answer waits to be taken"});
    return 0;
}

int keep_names(CmId& id, Addresses found) {
    Events event = make_event(id, kAddrinfoResolved);
    {
        const std::lock_guard held(id.library->mutex);
        if (id.resolved_names != nullptr)  // Another thread's, meanwhile.
            return fail(kResolveNames, {EBUSY, "an answer waits to be taken"});
        id.resolved_names = found.release();
    }
    queue_event(std::move(event));
    return 0;
}

}  // namespace
}  // namespace feroce::rdmacm

using namespace feroce;
using namespace feroce::rdmacm;

// On failure a code of getaddrinfo, or -1 with errno.
int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                     rdma_addrinfo** out) {
    return abi_call("rdma_getaddrinfo", [&]() -> int {
        if (node == nullptr && service == nullptr && hints == nullptr)
            return fail("rdma_getaddrinfo", {EINVAL, "neither a name nor hints"});
        auto* info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
        if (info == nullptr) return fail("rdma_getaddrinfo", {ENOMEM, "out of memory"});
        if (hints != nullptr) {
            info->ai_flags = hints->ai_flags;
            info->ai_family = hints->ai_family;
            info->ai_qp_type = hints->ai_qp_type;
            info->ai_port_space = hints->ai_port_space;
        }
        settle_kind(*info);
        if (const int code = fill(*info, node, service, hints); code != 0) {
            rdma_freeaddrinfo(info);
            return code;
        }
        *out = info;
        return 0;
    });
}

void rdma_freeaddrinfo(rdma_addrinfo* list) {
    while (list != nullptr) {
        rdma_addrinfo* next = list->ai_next;
        std::free(list->ai_src_addr);
        std::free(list->ai_dst_addr);
        std::free(list->ai_src_canonname);
        std::free(list->ai_dst_canonname);
        std::free(list);
        list = next;
    }
}

// The C library's resolver waits for its answer, so that the event is there when the call returns.
int rdma_resolve_addrinfo(rdma_cm_id* base, const char* node, const char* service,
                          const rdma_addrinfo* hints) {
    return within_memory(kResolveNames, [&]() -> int {
        if (base == nullptr) return fail(kResolveNames, {EINVAL, "no id"});
        CmId& id = id_of(base);
        {
            const process::Undisturbed part(id.synchronous);
            if (check_resolving_names(id, hints) != 0) return -1;
        }
        // May take many seconds: signals come through, and the id is not marked meanwhile.
        rdma_addrinfo* list = nullptr;
        if (const int failure = rdma_getaddrinfo(node, service, hints, &list); failure != 0)
            return fail(kResolveNames, {code_of(failure), "no address was found"});
        Addresses found(list);
        {
            const process::Undisturbed part(id.synchronous);
            if (keep_names(id, std::move(found)) != 0) return -1;
        }
        return complete(id);
    });
}

int rdma_query_addrinfo(rdma_cm_id* base, rdma_addrinfo** out) {
    return abi_call("rdma_query_addrinfo", [&]() -> int {
        if (base == nullptr || out == nullptr)
            return fail("rdma_query_addrinfo", {EINVAL, "no id or no place for the answer"});
        CmId& id = id_of(base);
        if (!is_current(*id.library))
            return fail("rdma_query_addrinfo", {ENODEV, "the id is of the process that forked"});
        const std::lock_guard held(id.library->mutex);
        if (id.resolved_names == nullptr)
            return fail("rdma_query_addrinfo", {ENOENT, "no answer waits"});
        *out = std::exchange(id.resolved_names, nullptr);
        return 0;
    });
}
