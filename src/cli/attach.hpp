// `feroce attach` and `feroce detach`: a disk of a server as a block device of this machine, where
// its kernel has ublk and lets us, else as an NBD socket.
#pragma once

#include <cstdint>
#include <string>

#include "block/disk_wish.hpp"

namespace feroce::cli {

struct AttachOptions {
    std::string servers;  // Addresses, with commas between them.
    std::string disk;
    std::string session;  // Empty: made of the machine's name and our pid.
    std::string access = "rw";
    std::string form = "auto";  // ublk, nbd.
    std::string socket;         // Empty: one in the user's runtime folder.
    std::uint16_t port = 1234;
    unsigned patience = 30;
    bool foreground = false;
};

block::DiskWish disk_wish(const AttachOptions& options);

// Prints the device or the NBD URI when the disk is open. The exit status.
int attach(AttachOptions options);
int detach(const std::string& what);

}  // namespace feroce::cli
