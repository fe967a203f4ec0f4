// Addresses: ibv_ah_attr to the engine's address vector and back.
#pragma once

#include "base/result.hpp"
#include "transport/types.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

Result<transport::AddressVector> address_vector(Context& context, const ibv_ah_attr& from);
ibv_ah_attr ah_attr(const transport::AddressVector& from);

}  // namespace feroce::verbs
