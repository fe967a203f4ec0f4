// DiskWish: which disk of which server a front end serves, and as whom it asks for it.
#pragma once

#include <string>
#include <vector>

#include "feroce/block/client.hpp"

namespace feroce::block {

struct DiskWish {
    std::string session;
    std::vector<rtrs::PathAddress> servers;
    std::string disk;
    AccessMode access = AccessMode::ReadWrite;
    rtrs::SessionOptions options;
};

}  // namespace feroce::block
