// ConnectionManager: the InfiniBand CM protocol without I/O. MADs come in by receive(), time by
// run(), and what the user wants by calls; MADs go out by MadPort and news by EventSink.
//
// One per process; one thread at a time (its owner's lock). Every id that connect() or
// sidr_request() returned or that a ConnectRequest or SidrRequest event named is the caller's until
// release(); after that no event names it. The protocol may go on a while for a released id (a DREQ
// to be answered, timewait), so its number is not given out again before that has ended.
//
// Only calls that make something (listen, connect, sidr_request, bid_farewell) throw for want of
// memory, and then nothing has changed. The others need none; a request that arrives is dropped.
#pragma once

#include <deque>
#include <optional>

#include "base/random.hpp"
#include "base/result.hpp"
#include "cm/connection.hpp"
#include "cm/connection_table.hpp"
#include "cm/farewells.hpp"
#include "cm/listener_table.hpp"
#include "cm/suspects.hpp"
#include "cm/types.hpp"

namespace feroce::cm {

class ConnectionManager {
public:
    ConnectionManager(const Config& config, RandomSource& random, MadPort& port, EventSink& sink);

    // EADDRINUSE if the same service and address are taken. Requests that were waiting for such a
    // listener are delivered at once.
    Result<ListenerId> listen(Instant now, const ListenOptions& options);
    // Requests that were delivered stay; they can still be accepted.
    void unlisten(ListenerId listener);

    Result<CommId> connect(Instant now, const ConnectOptions& options);
    // The program has the request, which counts no longer against its listener's backlog.
    void taken(CommId id);
    Result<void> accept(Instant now, CommId id, const AcceptOptions& options);
    // Refuses a request, or a response that was not established yet.
    Result<void> reject(Instant now, CommId id, const RejectOptions& options);
    // Active: the queue pair is ready, tell the peer (RTU). Passive: data came before the RTU.
    Result<void> establish(Instant now, CommId id);
    // Tells the peer that the answer to its REQ or REP will take up to 4.096 us << service_timeout.
    Result<void> ask_for_time(Instant now, CommId id, std::uint8_t service_timeout);
    // Disconnected follows. Fine for a connection that the peer has already ended.
    Result<void> disconnect(Instant now, CommId id);

    Result<CommId> sidr_request(Instant now, const SidrRequestOptions& options);
    Result<void> sidr_reply(Instant now, CommId id, const SidrReplyOptions& options);

    // The caller is done with the id. What is under way is refused, ended or given up.
    void release(Instant now, CommId id);
    // Tells the peer of a process that has died, as well as can be done without an answer.
    void bid_farewell(Instant now, const Bond& bond) { farewells_.add(now, bond); }
    // Datagrams did not reach these peers, somebody says. Those of them that have idle connections
    // are asked by run(), at most once in 5 s each, however much is said.
    void suspect(Instant now, const Suspects& peers);
    // Ends everything on an address of ours that has gone away.
    void remove_address(const Gid& address);

    // A datagram to QP1, from the MAD header on.
    void receive(Instant now, const Gid& source, const Gid& destination, ByteView mad,
                 Origin origin = Origin::Network);
    void run(Instant now);
    Instant next_wakeup() const;

    std::optional<State> state(CommId id) const;               // Nothing once the number is free.
    std::size_t connections() const { return table_.size(); }  // Timewait included.
    const Counters& counters() const { return counters_; }

private:
    struct Waiting {  // A request without a listener, until its grace ends.
        Instant until;
        Gid source;
        Gid destination;
        wire::MadBytes mad;
        Origin origin;
    };
    struct Arrival {  // A MAD on its way through receive().
        Instant now;
        const Gid& source;
        const Gid& destination;
        wire::CmMad mad;
        ByteView bytes;
        Origin origin;
    };
    enum class Patience : std::uint8_t { Wait, Refuse };  // With a request nobody listens for.

    // requests.cpp: what arrives before there is a connection.
    void on_request(const Arrival& a, Patience patience);
    void take_request(const Arrival& a, Patience patience);  // Throws; on_request() drops instead.
    void on_req(const Arrival& a, Patience patience);
    void on_sidr_req(const Arrival& a, Patience patience);
    void on_duplicate_req(const Arrival& a, const wire::CmReq& req, Connection& c);
    void on_stale(const Arrival& a, Connection& old);
    Connection* admit(const Arrival& a, Listener& listener);
    void deliver_req(const Arrival& a, const wire::CmReq& req, Listener& listener);
    void deliver_sidr_req(const Arrival& a, const wire::CmSidrReq& req, Listener& listener);
    void forget_request(Connection& c);
    void on_unserved(const Arrival& a, Patience patience);
    void refuse(const Arrival& a, RejectReason reason, SidrStatus status = SidrStatus::Rejected);
    void serve_waiting(Instant now);
    void expire_waiting(Instant now);

    // responses.cpp: what arrives for a connection.
    void on_mra(const Arrival& a);
    void on_rej(const Arrival& a);
    void on_rep(const Arrival& a);
    void on_rtu(const Arrival& a);
    void on_dreq(const Arrival& a);
    void on_drep(const Arrival& a);
    void on_lap(const Arrival& a);
    void on_sidr_rep(const Arrival& a);
    void take_rep(const Arrival& a, const wire::CmRep& rep, Connection& c);
    void take_dreq(const Arrival& a, const wire::CmDreq& dreq, Connection& c);
    void refuse_rep(const Arrival& a, const wire::CmRep& rep);
    bool is_from_peer(const Arrival& a, const Connection& c, CommId theirs);
    Connection* find_peer(const Arrival& a, CommId ours, CommId theirs);

    // keep_alive.cpp: whether the peer of an idle connection is still there.
    static Duration draw_phase(Duration keepalive, RandomSource& random);
    Instant next_turn(Instant now) const;
    void on_alive(const Arrival& a);
    void note_heard(Instant now, Connection& c);
    void keep_alive(Instant now, Connection& c);
    bool ask_peer(const Connection& c);
    bool is_given_up(Instant now, const Connection& c) const;
    void await_life(Instant now, Connection& c);
    void ask_suspects(Instant now);
    void doubt(Instant now, Connection& c, bool refused);
    void say_goodbye(const Connection& c);

    // progress.cpp: what they share.
    template <class Message>
    void send(Connection& c, const Message& message) {
        c.last_sent = Message::kAttribute;
        c.last_mad = wire::make_cm_mad(c.transaction, message);
        transmit(c);
    }
    template <class Message>
    void answer(const Arrival& a, const Message& message) {  // Without a connection.
        ++counters_.sent;
        port_.send(a.destination, a.source, wire::make_cm_mad(a.mad.transaction, message));
    }
    void transmit(const Connection& c);
    void replay(Instant now, Connection& c);
    void await_answer(Instant now, Connection& c);
    void send_dreq(Instant now, Connection& c);
    void send_rej(Connection& c, const RejectOptions& options);
    void send_sidr_rep(Instant now, Connection& c, const SidrReplyOptions& options);
    void on_deadline(Instant now, Connection& c);
    void tell_removed(Connection& c);
    void give_up(Instant now, Connection& c);
    void become_established(Instant now, Connection& c);
    // From these three on the protocol only repeats itself; close() may free the connection.
    void linger(Instant now, Connection& c);
    void end_connected(Instant now, Connection& c, bool timed_out);
    void close(Connection& c);
    void enter_timewait(Connection& c, Instant until);
    void bind(Connection& c);  // The peer may count on it from now on.
    void unbind(Connection& c);
    void settle(Connection& c);  // No longer in its listener's backlog.
    void tell(const Connection& c, Event event);
    void drop(Drop reason) { ++counters_.dropped[static_cast<std::size_t>(reason)]; }
    Connection& create(const Path& path, bool sidr);
    Result<void> check_path(const Path& path) const;
    Result<Connection*> held(CommId id);  // By the caller, that is: not released.

    const Config config_;
    RandomSource& random_;
    const Duration phase_;  // Of the turns of keep-alive.
    MadPort& port_;
    EventSink& sink_;
    ListenerTable listeners_;
    ConnectionTable table_;
    Farewells farewells_;
    std::deque<Waiting> waiting_;  // In order of `until`: the grace is the same for all.
    Suspects suspects_;            // Not asked yet.
    Instant suspects_due_{};       // When they may be: all connections are looked at for them.
    Counters counters_;
};

}  // namespace feroce::cm
