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

// An event of the device or its port, for all of them.
void tell_contexts(class Instance& instance, ibv_event_type type);

// The device's interface as it is now; nothing if it is gone.
std::optional<host::Interface> interface_of(process::Process& process, const Device& device);

void make_dead(Context& context);  // Refuses everything.

}  // namespace feroce::verbs
