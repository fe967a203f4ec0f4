#include "python/disk_sessions.hpp"

#include <algorithm>
#include <cerrno>

namespace feroce::python {

rdma::Result<std::shared_ptr<DiskSessions::Server>> DiskSessions::enter(
    const std::string& name, std::uint16_t port, const std::vector<rtrs::PathAddress>& paths) {
    std::erase_if(servers_, [](const auto& entry) { return entry.second.expired(); });
    std::shared_ptr<Server> server = servers_[name].lock();
    const auto known = [&server](const rtrs::PathAddress& path) {
        return std::ranges::count(server->addresses, path.destination) != 0;
    };
    if (server && (server->port != port || std::ranges::none_of(paths, known)))
        return rdma::Error(EINVAL, "the session name " + name +
                                       " belongs to another server: its disks have another port, "
                                       "or none of these addresses; give this disk a session name "
                                       "of its own");
    if (!server) {
        server = std::make_shared<Server>(Server{port, {}});
        servers_[name] = server;
    }
    for (const rtrs::PathAddress& path : paths)
        if (!known(path)) server->addresses.push_back(path.destination);
    return server;
}

}  // namespace feroce::python
