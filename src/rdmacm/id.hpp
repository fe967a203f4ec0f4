// The life of an id.
#pragma once

#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {

// `channel` null: a synchronous id with a channel of its own. Null with errno set.
CmId* create(Channel* channel, void* context, rdma_port_space space, ibv_qp_type type);
// Ends what is under way, waits until its events are acknowledged.
void destroy(CmId& id);
// The one path there is, as a record of InfiniBand's subnet administration.
void set_path_record(CmId& id);

}  // namespace feroce::rdmacm
