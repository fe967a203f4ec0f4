// DiskSessions: which server the session names of open disks belong to. A name that led to two
// servers would be one session with paths to both, and mix their data.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "feroce/error.hpp"
#include "feroce/rtrs/options.hpp"

namespace feroce::python {

class DiskSessions {
public:
    // Of a name, while a disk that has it is open.
    struct Server {
        std::uint16_t port;
        std::vector<std::string> addresses;
    };

    // EINVAL if the name is another server's: its port differs, or no address is the same.
    rdma::Result<std::shared_ptr<Server>> enter(const std::string& name, std::uint16_t port,
                                                const std::vector<rtrs::PathAddress>& paths);

private:
    std::map<std::string, std::weak_ptr<Server>> servers_;
};

}  // namespace feroce::python
