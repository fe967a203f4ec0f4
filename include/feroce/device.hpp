// Device: the device that has an address of this machine; for a loopback address the one that
// connections to it use. For programs that want a protection
// domain or a completion queue before they have a connection.
#pragma once

#include <rdma/rdma_cma.h>

#include "feroce/address.hpp"
#include "feroce/error.hpp"
#include "feroce/memory.hpp"

namespace feroce::rdma {

class Device {
public:
    static Result<Device> open(const Address& local);

    ibv_context* raw() const { return id_->verbs; }
    const char* name() const { return ibv_get_device_name(id_->verbs->device); }

private:
    explicit Device(rdma_cm_id* id) : id_(id) {}
    detail::Owned<rdma_cm_id, rdma_destroy_id> id_;  // Bound to the address.
};

}  // namespace feroce::rdma
