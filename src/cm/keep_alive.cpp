// Whether the peer of an idle connection is still there. It is asked only while nothing else is
// heard of it: any packet of its queue pair is a sign of life. The manager of a Feroce is asked by
// ALIVE. Of others the queue pair is asked, by a duplicate, which every responder acknowledges;
// while ours has work instead, its own retries tell.
//
// The network may say that datagrams do not reach a peer (ICMP). That is a hint, which anybody can
// forge: the peer is asked at once. If its own machine says that nobody has the port there, it is
// asked several times in a hurry, and is taken for dead if it answers none of them and its machine
// has said so again. A peer that answers is never harmed, and costs a question in kDoubtRest at
// most.
#include "cm/connection_manager.hpp"

#include <algorithm>

namespace feroce::cm {

namespace {

// Questions that must have gone unanswered, however late this process itself comes to look.
constexpr std::uint8_t kQuestionsMin = 5;

// A question and its answer take a round trip, so the first ones follow each other soon. Eight, in
// 5 s: with a fifth of all frames lost, one live peer in 3,500 answers none.
constexpr std::uint8_t kHurriedMax = 8;
constexpr Duration kHurriedGap = timeout_of(14);  // 67 ms, then twice as long each time, up to:
constexpr Duration kHurriedGapMax = std::chrono::seconds(1);
// A connection is asked about by a hint once in so long, as often as an idle one is with the
// keep-alive time that is usual.
constexpr Duration kDoubtRest = std::chrono::seconds(5);
// All connections are looked at for the suspects of so long together.
constexpr Duration kSuspectsGap = std::chrono::milliseconds(100);

Duration pace_of(Duration keepalive) {
    return std::max(keepalive / 15, Duration(1));
}

}  // namespace

// Processes of a machine have the same clock: with turns at full seconds, say, hundreds of them
// would wake up together.
Duration ConnectionManager::draw_phase(Duration keepalive, RandomSource& random) {
    if (keepalive == Duration{}) return {};
    const auto pace = static_cast<std::uint64_t>(pace_of(keepalive).count());
    return Duration(static_cast<Duration::rep>(random.next() % pace));
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
    c.hurried = 0;
    c.heard = now;
    if (config_.keepalive == Duration{}) return table_.set_deadline(c, kNever);
    c.packets = sink_.packets_received(c.local_qpn);
    table_.set_deadline(c, next_turn(now));
}

void ConnectionManager::keep_alive(Instant now, Connection& c) {
    if (sink_.packets_received(c.local_qpn) != c.packets) return note_heard(now, c);
    if (is_given_up(now, c)) {
        sink_.on_silence(c.local_qpn);
        say_goodbye(c);
        return end_connected(now, c, true);
    }
    if (!ask_peer(c)) return note_heard(now, c);  // Nothing is held against it.
    if (c.hurried > 0) c.hurried = c.hurried < kHurriedMax ? c.hurried + 1 : 0;
    await_life(now, c);
}

bool ConnectionManager::is_given_up(Instant now, const Connection& c) const {
    if (c.asked < kQuestionsMin) return false;
    return now - c.heard >= config_.keepalive || (c.hurried == kHurriedMax && c.refused_again);
}

// It was asked just now.
void ConnectionManager::await_life(Instant now, Connection& c) {
    if (c.asked < 255) ++c.asked;
    Duration gap = config_.keepalive / 9;
    if (c.hurried > 0) gap = std::min({gap, kHurriedGapMax, kHurriedGap * (1 << (c.hurried - 1))});
    table_.set_deadline(c, now + gap);
}

void ConnectionManager::suspect(Instant now, const Suspects& peers) {
    if (config_.keepalive == Duration{}) return;
    if (suspects_.empty()) suspects_due_ = std::max(suspects_due_, now);
    for (const Suspect& peer : peers.all()) suspects_.add(peer);
}

void ConnectionManager::ask_suspects(Instant now) {
    if (suspects_.empty() || now < suspects_due_) return;
    table_.for_each([&](Connection& c) {
        if (c.state != State::Established) return;
        if (const Suspect* peer = suspects_.find(c.path.remote)) doubt(now, c, peer->refused);
    });
    suspects_.clear();
    suspects_due_ = now + kSuspectsGap;
}

void ConnectionManager::doubt(Instant now, Connection& c, bool refused) {
    if (c.hurried > 0) {
        c.refused_again |= refused;
        return;
    }
    if (now < c.next_doubt || c.deadline <= now) return;  // Or it is asked anyway.
    c.next_doubt = now + kDoubtRest;
    // What was heard since the last look may be older than the hint: it is asked all the same.
    if (sink_.packets_received(c.local_qpn) != c.packets) note_heard(now, c);
    if (!ask_peer(c)) return;  // Its queue pair has work, whose retries tell.
    c.hurried = refused ? 1 : 0;
    c.refused_again = false;
    const Instant turn = c.deadline;
    await_life(now, c);
    if (turn < c.deadline) table_.set_deadline(c, turn);  // A hint delays nothing.
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
    const wire::CmAlive question{.local_id = c.local_id, .remote_id = c.remote_id};
    // Not the last message of the connection: that is kept for a peer that repeats its own.
    port_.send(c.path.local, c.path.remote, wire::make_cm_mad(c.local_id.raw, question));
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
