// The queue pair of an id: its creation and its way to RTS.
#pragma once

#include "rdmacm/objects.hpp"

namespace feroce::rdmacm {

ibv_ah_attr address_vector(const CmId& id);
// To RTS, with what the peer has said.
Result<void> connect_qp(CmId& id);
void stop_qp(CmId& id);  // To ERR, if there is one.

}  // namespace feroce::rdmacm
