// What stands behind the pointers that programs hold: each object starts with its public struct.
//
// One lock (Library::mutex) guards the queues of all channels, the event accounts and
// CmId::channel: calls of the connection manager are rare, and events move between channels. The
// service tells its events under its own lock and takes this one, so nobody calls the service with
// this one held.
//
// Everything hangs on the Library, which lives with the service: a forked child has neither. What
// it inherited of its parent's answers ENODEV, and no lock is taken that the parent may have held.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/annotate.hpp"
#include "base/rollback.hpp"
#include "base/uncancelled.hpp"
#include "process/abi_call.hpp"
#include "process/cm_service.hpp"
#include "process/event_counter.hpp"
#include "process/log.hpp"
#include "process/waiting.hpp"
#include "rdmacm/abi.hpp"
#include "rdmacm/stage.hpp"

namespace feroce::rdmacm {

struct Channel;
struct CmId;
struct Device;

// What this library has once a process (once a node in simulations).
struct Library final : process::CmUser {
    Library();
    ~Library() override;
    // Makes an event of it and queues that; a request also gets an id of its own.
    void* on_cm_event(const cm::Event& source, void* owner) override;

    process::CmService* service = nullptr;
    std::mutex mutex;
    process::Change acknowledgement;          // Notified under the lock.
    std::unique_ptr<Channel> last_destroyed;  // Stays open: channel.cpp says why.

    std::mutex devices_mutex;  // Guards the next three.
    std::map<std::string, std::unique_ptr<Device>> devices;
    std::vector<Device*> listed;  // Those of the last look, in the order of the device list.
};

// What rdma_get_cm_event hands out; freed by rdma_ack_cm_event.
struct Event : annotate::ReadByPrograms {
    rdma_cm_event base{};
    CmId* account = nullptr;  // Whose events count this one: the listener's for a request.
    bool from_peer = false;   // `source` says what happened; digest() makes `base` of it.
    cm::Event source{};
    std::array<std::byte, 232> private_data{};
    std::size_t private_data_length = 0;
};

// A list, so that events move from one to another without memory.
using Events = std::list<std::unique_ptr<Event>>;

struct Channel : annotate::ReadByPrograms {
    rdma_event_channel base{};
    Library* library = nullptr;
    process::EventCounter counter;
    Events events;
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

struct CmId : annotate::ReadByPrograms {
    rdma_cm_id base{};
    StageKeeper stage{Stage::Idle};
    Library* library = nullptr;
    process::CmService* service = nullptr;
    std::uint32_t queued = 0;     // Events in the channel,
    std::uint32_t delivered = 0;  // those handed out, and of those acknowledged.
    std::uint32_t acknowledged = 0;
    bool synchronous = false;  // The channel is ours and calls wait for their events.
    Options options;

    Gid local;  // The Gid that packets leave from; while listening, the address or wildcard.
    Gid remote;
    process::PortLease lease;
    std::optional<cm::ListenerId> listener;
    std::optional<cm::CommId> connection;

    cm::Path path;                         // The connection's, from connect() or the request.
    cm::Endpoint peer;                     // From the request or the response.
    Psn starting_psn;                      // Where the peer begins to send; ours is in `peer`.
    std::uint8_t responder_resources = 0;  // What we serve, and what we may have outstanding.
    std::uint8_t initiator_depth = 0;
    std::uint8_t retry_count = 7;
    bool owns_cqs = false;
    std::optional<ibv_qp_init_attr> accepted_qp;  // Of a passive endpoint: for its requests.
    ibv_pd* accepted_pd = nullptr;
    // For what the service will tell of it, made before the service knows the id: no event is lost
    // for want of memory. Taken under the service's lock.
    Events spare;
    Events unfetched;             // Of a listener that goes away: requests to it, to be refused.
    std::map<Gid, Group> groups;  // Multicast, by address.
    ibv_sa_path_rec path_record{};
    // The answer of rdma_resolve_addrinfo, until it is taken. Guarded by Library::mutex.
    rdma_addrinfo* resolved_names = nullptr;
};

inline CmId& id_of(rdma_cm_id* id) {
    return *reinterpret_cast<CmId*>(id);
}
inline Channel& channel_of(rdma_event_channel* channel) {
    return *reinterpret_cast<Channel*>(channel);
}

// This process's; null with errno set if it cannot be had.
Library* library();
// False if it is another process's: inherited by a fork.
bool is_current(const Library& library);

using process::refuse;

// As process/abi_call.hpp has it. Calls of this library tell of failure by -1.
template <class Body>
auto abi_call(const char* call, Body&& body) {
    return process::abi_call<process::FailAs::MinusOne>(call, body);
}
// For calls that wait.
template <class Body>
auto within_memory(const char* call, Body&& body) {
    return process::within_memory<process::FailAs::MinusOne>(call, body);
}

// For calls that tell of failure by -1.
inline int fail(const char* call, const Error& error) {
    errno = refuse(call, error);
    return -1;
}

inline bool is_ud(const CmId& id) {
    return id.base.qp_type == IBV_QPT_UD;
}

// The entry of a call on an id: asks the table, and moves the id on. If nothing says that the call
// succeeded, the id goes back where it was.
class Entry {
public:
    // Refused: from before a fork, or in the wrong stage.
    Entry(CmId& id, Call call, const char* name);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    bool refused() const { return verdict_ > 0; }  // errno says why.
    bool no_effect() const { return verdict_ == kNoEffect; }
    void keep() { kept_ = true; }

    // For calls that tell of failure by -1.
    int end(const Result<void>& done) {
        kept_ = static_cast<bool>(done);
        return done ? 0 : fail(name_, done.error());
    }

private:
    CmId& id_;
    const Call call_;
    const char* name_;
    int verdict_ = 0;
    Stage before_ = Stage::Idle;
    bool kept_ = false;
};

}  // namespace feroce::rdmacm
