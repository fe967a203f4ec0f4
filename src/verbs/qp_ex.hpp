// The builder interface of a queue pair: ibv_wr_start, one call per part of a request, and
// ibv_wr_complete, which posts all requests or none.
#pragma once

#include "verbs/objects.hpp"

namespace feroce::verbs {

bool builder_supports(ibv_qp_type type, std::uint64_t send_operations);
void fill_builder_operations(Qp& qp);

}  // namespace feroce::verbs
