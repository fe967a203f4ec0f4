// The words of the connection manager: what a caller asks for, what it is told, and the two
// interfaces through which everything leaves. Nothing here knows sockets, threads or clocks.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/gid.hpp"
#include "base/ids.hpp"
#include "base/psn.hpp"
#include "base/time.hpp"
#include "cm/bond.hpp"
#include "wire/cm_path_messages.hpp"

namespace feroce::cm {

using wire::CommId;  // Ours names a connection (or a SIDR exchange) in calls and events.
using wire::RejectReason;
using wire::ServiceId;
using wire::SidrStatus;
using wire::TransportType;
using ListenerId = Id<struct ListenerIdTag>;

// The upper half of the CA GUID in our requests and responses: a peer that has it answers ALIVE.
// Locally administered, so no vendor's.
inline constexpr std::uint32_t kFeroceGuid = 0x02fe'0ce0;

struct Config {
    SlotNumber slot = 0;  // Upper bits of our communication ids: it steers answers to this process.
    std::uint64_t ca_guid = 0;
    std::uint8_t response_timeout = 20;  // 4.096 us << 20 = 4.3 s: what the Linux kernel asks for.
    std::uint8_t max_retries = 15;  // 4 bits. A message goes out at most 1 + max_retries times.
    std::size_t max_connections = 65536;  // Those in timewait included.
    std::size_t max_listeners = 4096;
    // A request for a service that nobody offers waits this long for a listener before it is
    // refused: programs tell the peer to connect and call listen a moment later.
    Duration listen_grace = std::chrono::milliseconds(50);
    std::size_t max_waiting_requests = 256;
    // A peer that was silent for so long about a connection is taken for dead. It is asked after a
    // third of the time: a Feroce's manager, or the queue pair of another. 0: never asked.
    Duration keepalive{};
};

// A path as seen from here.
struct Path {
    Gid local{};
    Gid remote{};
    std::uint8_t mtu = 3;          // IBTA's code: 1 = 256 bytes to 5 = 4096. The REQ's rules.
    std::uint32_t flow_label = 0;  // 20 bits.
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    std::uint8_t service_level = 0;
    std::uint8_t packet_rate = 0;
    std::uint8_t ack_timeout = 19;  // 4.096 us << 19 = 2.1 s.
    Pkey pkey = kDefaultPkey;
};

// One side's queue pair, as it tells the other. Counts are that side's own: what `peer` serves
// (responder_resources) bounds what we may have outstanding, and the other way round.
struct Endpoint {
    Qpn qpn{};
    Psn starting_psn{};  // Where the other side shall begin to send, so our receive PSN.
    TransportType transport = TransportType::Rc;  // REQ only; Extended is XRC.
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t retry_count = 7;  // REQ only.
    std::uint8_t rnr_retry_count = 7;
    bool flow_control = false;
    bool srq = false;
    Qkey qkey{};
    std::uint8_t target_ack_delay = 15;  // REP only.
    std::uint64_t ca_guid = 0;           // Filled in on receipt; we send Config::ca_guid.
};

struct ListenOptions {
    ServiceId service{};
    // An address of ours, or one of two wildcards: Gid::from_v4(0) takes requests to any IPv4
    // address, the zero Gid those to any address at all (v6_only: to any IPv6 address).
    Gid address{};
    bool v6_only = false;
    std::size_t backlog = 1024;  // Requests neither taken() nor answered.
};

struct ConnectOptions {
    Path path{};
    ServiceId service{};
    Endpoint endpoint{};
    ByteView private_data{};  // At most 92 bytes; with rdma_cm it begins with a wire::CmaHeader.
};

struct AcceptOptions {
    Endpoint endpoint{};
    ByteView private_data{};  // At most 196 bytes.
};

struct RejectOptions {
    RejectReason reason = RejectReason::ConsumerReject;
    ByteView additional_info{};  // At most 72 bytes.
    ByteView private_data{};     // At most 148 bytes.
};

struct SidrRequestOptions {
    Path path{};
    ServiceId service{};
    ByteView private_data{};  // At most 216 bytes.
};

struct SidrReplyOptions {
    SidrStatus status = SidrStatus::Success;
    Qpn qpn{};
    Qkey qkey{};
    ByteView private_data{};  // At most 136 bytes.
};

enum class EventType : std::uint8_t {
    ConnectRequest,   // Passive: accept, reject or release.
    ConnectResponse,  // Active: bring the queue pair to RTS, then establish (or reject).
    Established,      // Passive: the peer has sent RTU, or establish was called.
    Rejected,         // Either side, before Established.
    Unreachable,      // No answer after all retries.
    Disconnected,     // By either side. The queue pair is the caller's to stop.
    TimewaitExit,     // The queue pair's number may be used again. Only after Disconnected.
    SidrRequest,      // Passive: sidr_reply or release.
    SidrResponse,     // Active.
    AddressRemoved    // The local address is gone. The end that was waited for follows at once.
};

const char* to_string(EventType type);

struct Event {
    EventType type{};
    CommId connection{};
    ListenerId listener{};       // ConnectRequest, SidrRequest.
    ServiceId service{};         // ConnectRequest, SidrRequest, SidrResponse.
    Path path{};                 // The connection's.
    Endpoint peer{};             // ConnectRequest, ConnectResponse; SidrResponse: qpn and qkey.
    RejectReason reason{};       // Rejected.
    SidrStatus sidr_status{};    // SidrResponse.
    bool timed_out = false;      // Disconnected: the peer never answered our DREQ.
    ByteView additional_info{};  // Rejected. This and private_data live during the call only.
    ByteView private_data{};     // The message's whole field: its length is not on the wire.
};

// How many events a connection can cause at most, its request aside: ConnectResponse or
// Established, AddressRemoved, Disconnected, TimewaitExit. A sink can so take the memory for them
// beforehand.
inline constexpr std::size_t kEventsMax = 4;

// Told what happens. May not call the manager back: queue it. Of these calls only the event of a
// request may throw, for want of memory: the request then has never arrived.
class EventSink {
public:
    virtual ~EventSink() = default;
    virtual void on_event(const Event& event) = 0;
    // A peer counts on a connection from the first of these on, until the other.
    virtual void on_bound(const Bond&) {}
    virtual void on_unbound(CommId) {}
    // How many packets that queue pair of ours has got from its peer. While this changes nobody is
    // asked whether the peer is alive.
    virtual std::uint64_t packets_received(Qpn) { return 0; }
    // Sends the peer of that queue pair a packet that it must answer, without an effect: for peers
    // that do not answer ALIVE. False if the queue pair has no such packet now.
    virtual bool ask_peer(Qpn) { return false; }
    // The peer did not answer. The end of the connection is told next.
    virtual void on_silence(Qpn) {}
};

// How a message came to this manager.
enum class Origin : std::uint8_t {
    Network,
    Neighbour  // Another process of this machine got it and offered it to us.
};

// The way out. May drop; never blocks; may not call the manager back. Only offer() throws, for
// want of memory.
class MadPort {
public:
    virtual ~MadPort() = default;
    // `mad` is 256 bytes, for QP1 of `destination` with wire::kGeneralServicesQkey.
    virtual void send(const Gid& source, const Gid& destination, ByteView mad) = 0;
    // A REQ or SIDR_REQ that nobody listens for here, or a REJ that does not say which connection
    // of ours it ends and is for none here: true if another process took it. For a request this is
    // asked at arrival and once more before it is refused.
    virtual bool offer(const Gid& source, const Gid& destination, ByteView mad, Origin origin) = 0;
};

enum class Drop : std::uint8_t {
    Malformed,          // Not a MAD of ours by length, class, version, method or attribute.
    UnknownConnection,  // No connection has the communication id.
    WrongPeer,          // The connection's, but from another address or for another instance.
    WrongState,         // Known and well formed, but late, early or answered before.
    TableFull,          // Refused with a REJ as well.
    NoMemory,           // For a new request: lost, as by the network. The peer repeats it.
    Count
};

struct Counters {
    std::uint64_t sent = 0;
    std::uint64_t retried = 0;   // Of those sent: because no answer came.
    std::uint64_t replayed = 0;  // Of those sent: because the peer repeated its message.
    std::uint64_t received = 0;
    std::array<std::uint64_t, static_cast<std::size_t>(Drop::Count)> dropped{};

    std::uint64_t drops(Drop reason) const { return dropped[static_cast<std::size_t>(reason)]; }
};

}  // namespace feroce::cm
