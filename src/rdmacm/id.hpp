// The life of an id, its queue pair and its multicast groups.
#pragma once

#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {

// `channel` null: a synchronous id with a channel of its own. Null with errno set.
CmId* create(Channel* channel, void* context, rdma_port_space space, ibv_qp_type type);
// Ends what is in progress, waits until its events are acknowledged.
void destroy(CmId& id);
// The one path there is, as a record of InfiniBand's subnet administration.
void set_path_record(CmId& id);

ibv_ah_attr address_vector(const CmId& id);
// To RTS, with what the peer has said.
Result<void> connect_qp(CmId& id);
void stop_qp(CmId& id);  // To ERR, if there is one.

void leave_all_groups(CmId& id);

}  // namespace feroce::rdmacm
