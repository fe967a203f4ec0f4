// ServerRegistry: what the loops of one server must agree on: which of them serves a session, that
// no two sessions have the same name, and how many there may be. Asked when connections are made
// and end, never for a request, so a lock does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "rtrs/uuid.hpp"

namespace feroce::rtrs {

class ServerRegistry {
public:
    struct Limits {
        std::size_t sessions = 0;
        std::size_t bytes = 0;  // Of all chunks.
    };
    // The session that has a name which another wants.
    struct Holder {
        Uuid session;
        std::size_t shard = 0;
        std::size_t paths = 0;
        std::uint64_t signs = 0;  // Of life, when asked for them.
        Duration heartbeat{};     // How often it gives one otherwise.
        std::string peer;
    };

    // Of `session_bytes` each.
    ServerRegistry(std::size_t shards, Limits limits, std::size_t session_bytes);

    // The shard of this session; for one that is not known the shard that has the fewest.
    std::size_t shard_of(const Uuid& session);
    // A shard is about to make it. False: another has it. It may have been forgotten since
    // shard_of() was asked.
    bool hold(const Uuid& session, std::size_t shard);
    // Whether one more would be admitted now.
    Result<void> has_room();
    // Its client has proved to be there, and the shard is about to make its chunks.
    Result<void> admit(const Uuid& session, std::size_t shard);
    // There was no memory for them. Another of its paths may try again.
    void dismiss(const Uuid& session);
    // It has ended, or was not made after all. Nothing if another shard has it.
    void forget(const Uuid& session, std::size_t shard);
    void set_paths(const Uuid& session, std::size_t paths);
    void note_sign(const Uuid& session);
    struct Claim {
        Uuid session;
        std::string name;
        Duration heartbeat{};
        std::string peer = {};
    };
    // Gives a session its name; or tells which one has it, until that is forgotten.
    Result<std::optional<Holder>> claim_name(const Claim& claim);

private:
    struct Entry {
        std::size_t shard = 0;
        bool admitted = false;
        std::size_t paths = 0;
        std::uint64_t signs = 0;
        std::string name;
        Duration heartbeat{};
        std::string peer;
    };

    Result<void> check_room() const;  // The lock is held.

    const Limits limits_;
    const std::size_t session_bytes_;
    std::mutex mutex_;  // Of all that follows.
    std::map<Uuid, Entry> entries_;
    std::vector<std::size_t> loads_;  // Entries, by shard.
    std::size_t admitted_ = 0;
};

}  // namespace feroce::rtrs
