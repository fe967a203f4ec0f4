// What a device says of itself; also the ops behind the extended queries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "verbs/abi.hpp"

namespace feroce::verbs {

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out, std::size_t size);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

}  // namespace feroce::verbs
