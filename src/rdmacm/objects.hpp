// What stands behind the pointers that programs hold: each object starts with its public struct.
//
// One lock (lock()) guards the queues of all channels, the event accounts and CmId::channel: calls
// of the connection manager are rare, and events move between channels. The service tells its
// events under its own lock and takes this one, so nobody calls the service with this one held.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/uncancelled.hpp"
#include "process/cm_service.hpp"
#include "process/event_counter.hpp"
#include "process/log.hpp"
#include "rdmacm/abi.hpp"

namespace feroce::rdmacm {

struct CmId;

// What rdma_get_cm_event hands out; freed by rdma_ack_cm_event.
struct Event {
    rdma_cm_event base{};
    CmId* account = nullptr;  // Whose events count this one: the listener's for a request.
    bool from_peer = false;   // `source` says what happened; digest() makes `base` of it.
    cm::Event source{};
    std::array<std::byte, 232> private_data{};
    std::size_t private_data_length = 0;
};

struct Channel {
    rdma_event_channel base{};
    process::EventCounter counter;
    std::deque<std::unique_ptr<Event>> events;  // As many as the counter counts.
};

struct Options {
    std::uint8_t tos = 0;
    std::optional<std::uint8_t> ack_timeout;
    bool v6_only = false;
};

struct Group {
    ibv_gid mgid{};
    bool attached = false;
};

struct CmId {
    rdma_cm_id base{};
    process::CmService* service = nullptr;  // Another than service(): from before a fork.
    std::uint32_t delivered = 0;            // Events handed out, and of those acknowledged.
    std::uint32_t acknowledged = 0;
    bool synchronous = false;  // The channel is ours and calls wait for their events.
    Options options;

    Gid local;  // Zero while no address is known; a wildcard binds to no device.
    Gid remote;
    process::PortLease lease;
    std::optional<cm::ListenerId> listener;
    std::optional<cm::CommId> connection;

    bool passive = false;
    cm::Path path;                         // The connection's, from connect() or the request.
    cm::Endpoint peer;                     // From the request or the response.
    Psn starting_psn;                      // Where the peer begins to send; ours is in `peer`.
    std::uint8_t responder_resources = 0;  // What we serve, and what we may have outstanding.
    std::uint8_t initiator_depth = 0;
    std::uint8_t retry_count = 7;
    bool owns_cqs = false;
    std::optional<ibv_qp_init_attr> accepted_qp;  // Of a passive endpoint: for its requests.
    ibv_pd* accepted_pd = nullptr;
    std::vector<CmId*> unfetched;  // Of a listener that goes away: requests to it, to be refused.
    std::map<Gid, Group> groups;   // Multicast, by address.
    ibv_sa_path_rec path_record{};
};

inline CmId& id_of(rdma_cm_id* id) {
    return *reinterpret_cast<CmId*>(id);
}
inline Channel& channel_of(rdma_event_channel* channel) {
    return *reinterpret_cast<Channel*>(channel);
}

std::mutex& lock();
process::Change& acknowledgement();  // Notified under lock().

// The connection manager of this process; null with errno set if it cannot be had.
process::CmService* service();
// False, with errno ENODEV, if the id is from before a fork.
bool alive(const CmId& id);

using process::refuse;

// For calls that tell of failure by -1.
inline int fail(const char* call, const Error& error) {
    errno = refuse(call, error);
    return -1;
}

inline bool is_ud(const CmId& id) {
    return id.base.qp_type == IBV_QPT_UD;
}

}  // namespace feroce::rdmacm
