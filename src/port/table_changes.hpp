// What the kernel tells by netlink when its tables of links, addresses and routes change: before
// the call that changed them returns. What has changed is read from the tables; here only that
// something has.
#pragma once

#include <linux/rtnetlink.h>

#include <span>

#include "port/fd.hpp"

namespace feroce::port {

// Of the network that the calling thread is in. `groups`: RTNLGRP_...; those that the kernel does
// not have are left out. Invalid without netlink (some sandboxes).
Fd open_table_changes(std::span<const int> groups);

// Whether something has changed since the last call. Never blocks. False for an invalid descriptor.
bool take_table_changes(int fd);

}  // namespace feroce::port
