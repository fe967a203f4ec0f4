#include "feroce/device.hpp"

#include "rdma/failure.hpp"

namespace feroce::rdma {
namespace {

constexpr int kResolveMs = 2000;  // This machine itself answers: no network is asked.

bool is_loopback(const sockaddr& address) {
    if (address.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

}  // namespace

Result<Device> Device::open(const Address& local) {
    if (Result<> good = local.check(); !good) return good.error();
    rdma_cm_id* id = nullptr;
    if (::rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) != 0)
        return no_device("no device can be opened");
    Device device(id);
    const Address any_port = local.with_port(0);
    if (::rdma_bind_addr(id, const_cast<sockaddr*>(any_port.raw())) != 0)
        return failure("no device of this machine has the address " + any_port.text());
    // To rdma_cm a loopback address is one of every device; a connection to it tells which is used.
    // The id has no channel, so the call returns when the answer is there.
    if (id->verbs == nullptr && is_loopback(*any_port.raw()) &&
        ::rdma_resolve_addr(id, nullptr, const_cast<sockaddr*>(any_port.raw()), kResolveMs) != 0)
        return failure("no device of this machine leads to " + any_port.text());
    if (id->verbs == nullptr)
        return Error(EINVAL, any_port.text() + " stands for all devices; name one of its own");
    return device;
}

}  // namespace feroce::rdma
