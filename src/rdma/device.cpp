#include "feroce/device.hpp"

#include "rdma/failure.hpp"

namespace feroce::rdma {

Result<Device> Device::open(const Address& local) {
    if (Result<> good = local.check(); !good) return good.error();
    rdma_cm_id* id = nullptr;
    if (::rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) != 0)
        return failure("RDMA is not available here");
    Device device(id);
    const Address any_port = local.with_port(0);
    if (::rdma_bind_addr(id, const_cast<sockaddr*>(any_port.raw())) != 0)
        return failure("no device of this machine has the address " + any_port.text());
    if (id->verbs == nullptr)
        return Error(EINVAL, any_port.text() + " stands for all devices; name one of its own");
    return device;
}

}  // namespace feroce::rdma
