// MulticastGroups: which queue pairs of a shard listen to which group address. Members stand in the
// order in which they came, so that delivery is the same in every run. Owns nothing: whoever
// destroys a queue pair removes it first. Engine lock.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "base/gid.hpp"
#include "base/result.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::device {

class MulticastGroups {
public:
    static constexpr std::size_t kGroupsMax = 8192;
    static constexpr std::size_t kMembersMax = 256;  // Of one group.

    // True if the group is new here and the network must be joined. Attaching twice is as once.
    Result<bool> attach(const Gid& group, transport::QueuePair& qp);
    // True if that was the last member and the group can be left. EINVAL if it is not attached.
    Result<bool> detach(const Gid& group, transport::QueuePair& qp);
    std::span<transport::QueuePair* const> members(const Gid& group) const;
    // Detaches it everywhere, and tells of the groups that became empty.
    template <class Emptied>
    void remove_all(transport::QueuePair& qp, Emptied&& emptied) {
        for (auto it = groups_.begin(); it != groups_.end();) {
            std::erase(it->second, &qp);
            if (!it->second.empty()) {
                ++it;
                continue;
            }
            emptied(it->first);
            it = groups_.erase(it);
        }
    }
    std::size_t size() const { return groups_.size(); }

private:
    std::map<Gid, std::vector<transport::QueuePair*>> groups_;  // None is empty.
};

}  // namespace feroce::device
