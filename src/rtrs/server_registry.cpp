// See server_registry.hpp.
#include "rtrs/server_registry.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"

namespace feroce::rtrs {

ServerRegistry::ServerRegistry(std::size_t shards, Limits limits, std::size_t session_bytes)
    : limits_(limits), session_bytes_(session_bytes), loads_(shards) {}

std::size_t ServerRegistry::shard_of(const Uuid& session) {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = entries_.try_emplace(session);
    if (!is_new) return entry->second.shard;
    const auto least = std::min_element(loads_.begin(), loads_.end());
    ++*least;
    entry->second.shard = static_cast<std::size_t>(least - loads_.begin());
    return entry->second.shard;
}

bool ServerRegistry::hold(const Uuid& session, std::size_t shard) {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = entries_.try_emplace(session);
    if (is_new) {
        entry->second.shard = shard;
        ++loads_[shard];
    }
    return entry->second.shard == shard;
}

Result<void> ServerRegistry::has_room() {
    const std::lock_guard lock(mutex_);
    return check_room();
}

Result<void> ServerRegistry::check_room() const {
    if (admitted_ >= limits_.sessions)
        return Error{ENOMEM, "the server has the largest number of sessions"};
    if ((admitted_ + 1) * session_bytes_ > limits_.bytes)
        return Error{ENOMEM, "the chunks of one more session exceed the server's memory limit"};
    return {};
}

Result<void> ServerRegistry::admit(const Uuid& session, std::size_t shard) {
    const std::lock_guard lock(mutex_);
    if (auto fits = check_room(); !fits) return fits;
    // Another of its connections may have been refused, and the session forgotten, meanwhile.
    const auto [found, is_new] = entries_.try_emplace(session);
    Entry& entry = found->second;
    if (is_new) {
        entry.shard = shard;
        ++loads_[shard];
    }
    if (entry.shard != shard) return Error{ECONNRESET, "the session is served elsewhere by now"};
    ASSERT(!entry.admitted);
    entry.admitted = true;
    ++admitted_;
    return {};
}

void ServerRegistry::dismiss(const Uuid& session) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(session);
    if (found == entries_.end() || !std::exchange(found->second.admitted, false)) return;
    --admitted_;
}

void ServerRegistry::forget(const Uuid& session, std::size_t shard) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(session);
    if (found == entries_.end() || found->second.shard != shard) return;
    if (found->second.admitted) --admitted_;
    --loads_[found->second.shard];
    entries_.erase(found);
}

void ServerRegistry::set_paths(const Uuid& session, std::size_t paths) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(session);
    if (found != entries_.end()) found->second.paths = paths;
}

void ServerRegistry::note_sign(const Uuid& session) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(session);
    if (found != entries_.end()) ++found->second.signs;
}

Result<std::optional<ServerRegistry::Holder>> ServerRegistry::claim_name(const Claim& claim) {
    const std::lock_guard lock(mutex_);
    const auto own = entries_.find(claim.session);
    if (own == entries_.end()) return Error{ECONNRESET, "the session was forgotten meanwhile"};
    if (!own->second.name.empty() && own->second.name != claim.name)
        return Error{EPERM, "paths of one session give different names"};
    for (const auto& [uuid, entry] : entries_) {
        if (uuid == claim.session || entry.name != claim.name) continue;
        return std::optional(
            Holder{uuid, entry.shard, entry.paths, entry.signs, entry.heartbeat, entry.peer});
    }
    own->second.name = claim.name;
    own->second.heartbeat = claim.heartbeat;
    own->second.peer = claim.peer;
    return std::optional<Holder>{};
}

}  // namespace feroce::rtrs
