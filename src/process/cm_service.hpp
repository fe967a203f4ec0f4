// CmService: the connection manager of this process, as librdmacm.so.1 sees it. It lives in
// libibverbs.so.1 beside the engine, so librdmacm holds only a pointer and calls through the table
// of virtual functions; both libraries come from one build.
//
// Any thread may call. No exception goes from one library to the other: where memory is wanting,
// the result is ENOMEM. Events are told to the user under the service's lock: it queues them and
// returns, and never calls the service back from there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.hpp"
#include "cm/types.hpp"
#include "host/rendezvous.hpp"
#include "wire/cma.hpp"

namespace feroce::process {

// Who uses the service: librdmacm, with all that it keeps of its own. It lives as long as the
// service, so that a fork leaves both behind. Owners are its own pointers, handed back with events.
class CmUser {
public:
    virtual ~CmUser() = default;
    // For a ConnectRequest or SidrRequest `owner` is the listener's, and the result is that of the
    // new connection (null: there is no memory for it); else the result is ignored.
    virtual void* on_cm_event(const cm::Event& event, void* owner) = 0;
};

using host::PortLease;

class CmService {
public:
    virtual ~CmService() = default;
    // The one user, made at the first call; null if `make` could not.
    virtual CmUser* user(std::unique_ptr<CmUser> (*make)()) = 0;
    virtual std::uint64_t random() = 0;
    // A call of the user's was refused: for the state page. The strings live for ever.
    virtual void note_refusal(const char* call, const Error& error) = 0;
    // The address that packets to `destination` leave from; `scope` is that of a link-local one.
    virtual Result<Gid> source_for(const Gid& destination, std::uint32_t scope) = 0;

    // Port 0 picks a free one. EADDRINUSE if another process, or this one, has it.
    virtual Result<PortLease> lease_port(wire::PortSpace space, const Gid& address,
                                         std::uint16_t port) = 0;
    virtual void end_lease(const PortLease& lease) = 0;

    // As cm::ConnectionManager's, with the owner whom events are for. After unlisten() and
    // release() no event names the owner any more.
    virtual Result<cm::ListenerId> listen(const cm::ListenOptions& options, void* owner) = 0;
    virtual void unlisten(cm::ListenerId listener) = 0;
    // The id is in `out` before the owner hears of it.
    virtual Result<void> connect(const cm::ConnectOptions& options, void* owner,
                                 std::optional<cm::CommId>& out) = 0;
    virtual Result<void> sidr_request(const cm::SidrRequestOptions& options, void* owner,
                                      std::optional<cm::CommId>& out) = 0;
    virtual void taken(cm::CommId id) = 0;
    virtual Result<void> accept(cm::CommId id, const cm::AcceptOptions& options) = 0;
    virtual Result<void> sidr_reply(cm::CommId id, const cm::SidrReplyOptions& options) = 0;
    virtual Result<void> reject(cm::CommId id, const cm::RejectOptions& options) = 0;
    virtual Result<void> establish(cm::CommId id) = 0;
    virtual Result<void> disconnect(cm::CommId id) = 0;
    virtual void release(cm::CommId id) = 0;
};

}  // namespace feroce::process
