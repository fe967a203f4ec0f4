// What a desk exports, and to which clients: the part of it that its owner changes while it runs.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "block/desk.hpp"

namespace feroce::block {

rdma::Result<> Desk::add(Export what) {
    if (what.name.empty() || what.name.size() > kMaxNameSize ||
        what.name.find("..") != std::string::npos)
        return rdma::Error(EINVAL, "an export's name has 1 to 254 characters and no '..' in it");
    auto guests = GuestList::parse(what.sessions, what.addresses);
    if (!guests) return rdma::Error(guests.error().code, what.name + ": " + guests.error().why);
    const std::uint32_t number = device_number(what.name);
    const auto taken = disks_.find(number);
    if (taken != disks_.end())
        return rdma::Error(EEXIST, "the exports " + taken->second->what().name + " and " +
                                       what.name + " have the same name or number; rename one");
    const auto disk = std::make_shared<ExportedDisk>(std::move(what), *std::move(guests), keeper_);
    disks_.emplace(number, disk);
    // A loss that an older export of the store could not keep.
    disk->settle();
    return {};
}

std::shared_ptr<ExportedDisk> Desk::exported(const std::string& name) const {
    const auto found = disks_.find(device_number(name));
    return found != disks_.end() && found->second->what().name == name ? found->second : nullptr;
}

std::shared_ptr<ExportedDisk> Desk::withdraw(const std::string& name) {
    std::shared_ptr<ExportedDisk> disk = exported(name);
    if (disk == nullptr) return nullptr;
    const std::uint32_t number = device_number(name);
    disks_.erase(number);
    for (auto& [id, session] : sessions_)
        std::erase_if(session.devices, [&](const auto& one) { return one.first.device == number; });
    return disk;
}

rdma::Result<> Desk::set_guests(const std::string& name, std::vector<std::string> sessions,
                                std::vector<std::string> addresses) {
    const std::shared_ptr<ExportedDisk> disk = exported(name);
    if (disk == nullptr) return rdma::Error(ENOENT, "no disk " + name + " is exported");
    auto guests = GuestList::parse(sessions, addresses);
    if (!guests) return rdma::Error(guests.error().code, name + ": " + guests.error().why);
    disk->set_guests(std::move(sessions), std::move(addresses), *std::move(guests));
    for (auto& [id, session] : sessions_) {
        if (admits(*disk, session)) continue;
        std::erase_if(session.devices, [&](const auto& one) { return one.second->disk == disk; });
    }
    return {};
}

bool Desk::admits(const ExportedDisk& disk, const Session& session) {
    const GuestList& guests = disk.guests();
    const auto admitted = [&](const std::string& at) { return guests.admits_address(at); };
    return guests.admits_name(session.name) &&
           std::all_of(session.addresses.begin(), session.addresses.end(), admitted);
}

std::vector<Writer> Desk::writers() const {
    std::vector<Writer> out;
    for (const auto& [number, disk] : disks_)
        for (const ExportedDisk::Hold* const hold : disk->holds()) {
            Writer writer{disk->what().name, hold->name, {}, hold->generation};
            const auto session = sessions_.find(hold->session);
            if (session != sessions_.end())
                writer.addresses.assign(session->second.addresses.begin(),
                                        session->second.addresses.end());
            out.push_back(std::move(writer));
        }
    return out;
}

bool Desk::evict(const std::string& name) {
    const std::shared_ptr<ExportedDisk> disk = exported(name);
    if (disk == nullptr || disk->holds().empty()) return false;
    disk->evict();
    for (auto& [id, session] : sessions_)
        std::erase_if(session.devices, [&](const auto& one) {
            return one.second->disk == disk && one.second->hold != nullptr;
        });
    disk->settle();
    return true;
}

std::vector<std::shared_ptr<ExportedDisk>> Desk::disks() const {
    std::vector<std::shared_ptr<ExportedDisk>> out;
    for (const auto& [number, disk] : disks_) out.push_back(disk);
    return out;
}

}  // namespace feroce::block
