// The open contexts of this process: told when interfaces change, found again by ibv_import_device.
#pragma once

#include "verbs/objects.hpp"

namespace feroce::verbs {

// `cmd_fd` becomes the context's own if it opens.
ibv_context* open_device(ibv_device* device, int cmd_fd);

void add_context(Context& context);
void remove_context(Context& context);

// The device whose context has this cmd_fd, or a duplicate of it; null if none.
Device* device_of_fd(int fd);

// Addresses or links have changed: updates GID tables and queues the events that follow.
void refresh_contexts(class Instance& instance);

// GID tables change under the program's feet; a copy does not.
Gid gid_at(Context& context, std::size_t index);  // Zero if there is none.
std::vector<Gid> gids_of(Context& context);

}  // namespace feroce::verbs
