// Queue pair attributes: ibv_qp_attr to the engine's and back.
#pragma once

#include "base/result.hpp"
#include "transport/types.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

// Only what `mask` names is looked at.
Result<transport::QpAttributes> qp_attributes(Context& context, const ibv_qp_attr& from, int mask);
// As ibv_query_qp tells them: PSNs are the next to be sent and to be received.
ibv_qp_attr qp_attr(const transport::QueuePair& qp, const ibv_qp_cap& capabilities);

}  // namespace feroce::verbs
