#include "device/multicast.hpp"

#include <algorithm>
#include <cerrno>

namespace feroce::device {

Result<bool> MulticastGroups::attach(const Gid& group, transport::QueuePair& qp) {
    const auto found = groups_.find(group);
    if (found == groups_.end()) {
        if (groups_.size() >= kGroupsMax) return Error{ENOMEM, "too many multicast groups"};
        groups_.emplace(group, std::vector{&qp});
        return true;
    }
    auto& list = found->second;
    if (std::find(list.begin(), list.end(), &qp) != list.end()) return false;
    if (list.size() >= kMembersMax)
        return Error{ENOMEM, "too many queue pairs in one multicast group"};
    list.push_back(&qp);
    return false;
}

Result<bool> MulticastGroups::detach(const Gid& group, transport::QueuePair& qp) {
    const auto found = groups_.find(group);
    if (found == groups_.end() || std::erase(found->second, &qp) == 0)
        return Error{EINVAL, "the queue pair is not attached to this multicast group"};
    if (!found->second.empty()) return false;
    groups_.erase(found);
    return true;
}

std::span<transport::QueuePair* const> MulticastGroups::members(const Gid& group) const {
    const auto found = groups_.find(group);
    if (found == groups_.end()) return {};
    return found->second;
}

}  // namespace feroce::device
