// Work requests that send nothing: a bind of a memory window, and a local invalidate.
#pragma once

#include <cstdint>

#include "transport/queue_pair.hpp"
#include "transport/send_error.hpp"

namespace feroce::transport {

// Carries out the request at `index` of the send queue. Rule::None: it succeeded.
SendFailure execute_local(QueuePair& qp, std::uint64_t index);

}  // namespace feroce::transport
