// The rsockets of this process by their descriptors. A call holds the socket while it lasts, so
// rclose() in another thread takes nothing away from it. A forked child starts with none: the
// connections are its parent's.
#pragma once

#include <memory>

#include "rsocket/endpoint.hpp"

namespace feroce::rsockets {

void enter(std::shared_ptr<Endpoint> socket);
std::shared_ptr<Endpoint> find(int descriptor);  // Null if it is none.
std::shared_ptr<Endpoint> remove(int descriptor);

}  // namespace feroce::rsockets
