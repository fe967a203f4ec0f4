// Whether the peer of an idle connection is still there. It is asked only while nothing else is
// heard of it: any packet of its queue pair is a sign of life. The manager of a Feroce is asked by
// ALIVE. Of others the queue pair is asked, by a duplicate, which every responder acknowledges;
// while ours has work instead, its own retries tell.
#include "cm/connection_manager.hpp"

#include <algorithm>

namespace feroce::cm {

namespace {

// Questions that must have gone unanswered, however late this process itself comes to look.
constexpr std::uint8_t kQuestionsMin = 5;

Duration pace_of(Duration keepalive) {
    return std::max(keepalive / 15, Duration(1));
}

}  // namespace

// Processes of a machine have the same clock: with turns at full seconds, say, hundreds of them
// would wake up together.
Duration ConnectionManager::draw_phase(Duration keepalive, RandomSource& random) {
    if (keepalive == Duration{}) return {};
    return Duration(static_cast<Duration::rep>(
        random.next() % static_cast<std::uint64_t>(pace_of(keepalive).count())));
}

// The next moment at which idle connections are looked at. The same for all of them within a
// fifteenth of the time, so that a process with many sleeps in between.
Instant ConnectionManager::next_turn(Instant now) const {
    const Duration pace = pace_of(config_.keepalive);
    const Duration since = (now + config_.keepalive / 3 - phase_).time_since_epoch();
    return Instant((since + pace - Duration(1)) / pace * pace + phase_);
}

void ConnectionManager::note_heard(Instant now, Connection& c) {
    c.asked = 0;
    c.heard = now;
    if (config_.keepalive == Duration{}) return table_.set_deadline(c, kNever);
    c.packets = sink_.packets_received(c.local_qpn);
    table_.set_deadline(c, next_turn(now));
}

void ConnectionManager::keep_alive(Instant now, Connection& c) {
    if (sink_.packets_received(c.local_qpn) != c.packets) return note_heard(now, c);
    if (c.asked >= kQuestionsMin && now - c.heard >= config_.keepalive) {
        sink_.on_silence(c.local_qpn);
        say_goodbye(c);
        return end_connected(now, c, true);
    }
    if (!ask_peer(c)) return note_heard(now, c);  // Nothing is held against it.
    if (c.asked < 255) ++c.asked;
    table_.set_deadline(c, now + config_.keepalive / 9);
}

// Once and unanswered: it may be alive and hear us, where we do not hear it.
void ConnectionManager::say_goodbye(const Connection& c) {
    ++counters_.sent;
    port_.send(c.path.local, c.path.remote,
               wire::make_cm_mad(c.local_id.raw, wire::CmDreq{.local_id = c.local_id,
                                                              .remote_id = c.remote_id,
                                                              .remote_qpn = c.remote_qpn}));
}

bool ConnectionManager::ask_peer(const Connection& c) {
    if (!c.is_feroce) return sink_.ask_peer(c.local_qpn);
    ++counters_.sent;
    // Not the last message of the connection: that is kept for a peer that repeats its own.
    port_.send(c.path.local, c.path.remote,
               wire::make_cm_mad(c.local_id.raw,
                                 wire::CmAlive{.local_id = c.local_id, .remote_id = c.remote_id}));
    return true;
}

void ConnectionManager::on_alive(const Arrival& a) {
    const wire::CmAlive alive = wire::CmAlive::parse(a.mad.message);
    Connection* c = table_.find(alive.remote_id);
    if (alive.answer) {
        if (c == nullptr) return drop(Drop::UnknownConnection);
        if (!is_from_peer(a, *c, alive.local_id)) return;
        if (c->state != State::Established || c->asked == 0) return drop(Drop::WrongState);
        return note_heard(a.now, *c);
    }
    // Of another connection, before or after: this one the peer asks about is over.
    const bool same = c != nullptr && a.source == c->path.remote && !c->sidr &&
                      c->remote_id == alive.local_id && c->is_live();
    if (!same)
        return answer(a, wire::CmDrep{.local_id = alive.remote_id, .remote_id = alive.local_id});
    answer(a, wire::CmAlive{.local_id = c->local_id, .remote_id = c->remote_id, .answer = true});
}

}  // namespace feroce::cm
