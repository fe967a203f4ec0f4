// For tests: nodes with a ConnectionManager each, joined by a network of virtual time that asks a
// function for the fate of every datagram. Nodes answer requests and responses by themselves.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "cm/connection_manager.hpp"

namespace feroce::cm {

using namespace std::chrono_literals;

enum class Fate : std::uint8_t { Deliver, Drop, Twice, Late, VeryLate };

struct Datagram {
    Gid source{};
    Gid destination{};
    wire::MadBytes mad{};
    std::size_t index = 0;  // Of all that were ever sent.

    wire::CmAttribute attribute() const { return wire::parse_cm_mad(mad)->attribute; }
};

// What is left of an event once its views are gone.
struct Seen {
    EventType type{};
    CommId connection{};
    ListenerId listener{};
    RejectReason reason{};
    SidrStatus sidr_status{};
    bool timed_out = false;
    Endpoint peer{};
    Path path{};
    ServiceId service{};
    std::vector<std::byte> private_data{};
};

inline constexpr ServiceId kService{0x0106'1234};

class Net;

class Node final : public MadPort, public EventSink {
public:
    Node(Net& net, const Gid& address, const Config& config)
        : net_(net),
          address_(address),
          random_(address.v4()),
          manager(config, random_, *this, *this) {}

    void send(const Gid& source, const Gid& destination, ByteView mad) override;
    bool offer(const Gid&, const Gid&, ByteView, Origin) override {
        ++offers;
        return take_offers;
    }
    void on_event(const Event& e) override {
        const bool request =
            e.type == EventType::ConnectRequest || e.type == EventType::SidrRequest;
        std::size_t& told = told_[e.connection.raw];
        told = request ? 0 : told + 1;
        ASSERT(e.connection.raw == 0 || told <= kEventsMax);
        events.push_back({e.type,
                          e.connection,
                          e.listener,
                          e.reason,
                          e.sidr_status,
                          e.timed_out,
                          e.peer,
                          e.path,
                          e.service,
                          {e.private_data.begin(), e.private_data.end()}});
    }
    void on_bound(const Bond& bond) override {
        ASSERT(bonds.emplace(bond.local_id.raw, bond).second);
    }
    void on_unbound(CommId id) override { ASSERT(bonds.erase(id.raw) == 1); }
    std::uint64_t packets_received(Qpn) override { return hears ? ++packets_ : packets_; }
    bool ask_peer(Qpn) override;
    void on_silence(Qpn) override { ++silences; }
    void react(Instant now);  // To the events that are new.

    ConnectOptions connect_options(const Node& to, std::uint32_t qpn) const {
        return {.path = {.local = address_, .remote = to.address_, .ack_timeout = 21},
                .service = kService,
                .endpoint = {.qpn = {qpn}, .starting_psn = Psn(qpn * 3)}};
    }
    const Gid& address() const { return address_; }
    std::size_t count(EventType type, CommId id) const {
        return static_cast<std::size_t>(std::count_if(
            events.begin(), events.end(),
            [&](const Seen& seen) { return seen.type == type && seen.connection == id; }));
    }

private:
    Net& net_;
    Gid address_;
    Prng random_;
    std::size_t reacted_ = 0;
    std::uint32_t next_qpn_ = 0x800;
    std::uint64_t packets_ = 0;
    std::map<std::uint32_t, std::size_t> told_;  // Events by connection, its request aside.

public:
    ConnectionManager manager;
    std::vector<Seen> events;
    std::map<std::uint32_t, Bond> bonds;  // By our id.
    int offers = 0;
    bool take_offers = false;
    bool accepts = true;      // Else requests are left alone.
    bool rejects = false;     // Goes before accepts.
    bool establishes = true;  // Else responses are left alone.
    bool hangs_up = false;    // Disconnects as soon as a connection is established.
    bool lets_go = false;     // Releases whatever has ended.
    bool hears = false;       // Its queue pairs get packets all the time.
    // What a queue pair makes of a question to its peer's.
    enum class Question : std::uint8_t { NotAsked, Answered, Unanswered };
    Question question = Question::NotAsked;
    int questions = 0;
    int silences = 0;
};

class Net {
public:
    static constexpr Duration kLatency = 1ms;
    // Overtaken by what is sent 3 ms later, and by what is sent once more after a timeout.
    static constexpr Duration kLate = 4ms, kVeryLate = 6500ms;

    std::function<Fate(const Datagram&)> fate = [](const Datagram&) { return Fate::Deliver; };
    Instant now{};
    std::vector<Datagram> sent;

    Node& add(const Gid& address, Config config = {}) {
        config.slot = static_cast<std::uint8_t>(nodes_.size() + 1);
        return nodes_.try_emplace(address, *this, address, config).first->second;
    }
    void transmit(Datagram datagram) {
        datagram.index = sent.size();
        sent.push_back(datagram);
        const Fate what = fate(datagram);
        if (what == Fate::Drop) return;
        Duration delay = kLatency;
        if (what == Fate::Late) delay = kLate;
        if (what == Fate::VeryLate) delay = kVeryLate;
        in_flight_.emplace(now + delay, datagram);
        if (what == Fate::Twice) in_flight_.emplace(now + 2 * delay, datagram);
    }
    // Until nothing is left to happen, or `until`.
    void run(Instant until = kNever) {
        for (auto& [address, node] : nodes_) node.react(now);
        while (next() <= until && next() != kNever) step();
        if (until != kNever) now = until;
    }
    std::size_t count(wire::CmAttribute attribute) const {
        return static_cast<std::size_t>(
            std::count_if(sent.begin(), sent.end(),
                          [&](const Datagram& d) { return d.attribute() == attribute; }));
    }

private:
    Instant next() const {
        Instant first = in_flight_.empty() ? kNever : in_flight_.begin()->first;
        for (const auto& [address, node] : nodes_)
            first = std::min(first, node.manager.next_wakeup());
        return first;
    }
    void step() {
        now = next();
        while (!in_flight_.empty() && in_flight_.begin()->first <= now) {
            const Datagram d = in_flight_.begin()->second;
            in_flight_.erase(in_flight_.begin());
            const auto to = nodes_.find(d.destination);
            if (to == nodes_.end()) continue;
            to->second.manager.receive(now, d.source, d.destination, d.mad);
            to->second.react(now);
        }
        for (auto& [address, node] : nodes_) {
            node.manager.run(now);
            node.react(now);
        }
    }

    std::map<Gid, Node> nodes_;
    std::multimap<Instant, Datagram> in_flight_;
};

inline void Node::send(const Gid& source, const Gid& destination, ByteView mad) {
    Datagram datagram{.source = source, .destination = destination};
    std::copy(mad.begin(), mad.end(), datagram.mad.begin());
    net_.transmit(datagram);
}

inline bool Node::ask_peer(Qpn) {
    if (question == Question::NotAsked) return false;
    ++questions;
    if (question == Question::Answered) ++packets_;
    return true;
}

inline void Node::react(Instant now) {
    while (reacted_ < events.size()) {
        const Seen seen = events[reacted_++];
        const CommId id = seen.connection;
        switch (seen.type) {
            case EventType::ConnectRequest:
                if (rejects)
                    ASSERT(manager.reject(now, id, {}));
                else if (accepts)
                    ASSERT(manager.accept(now, id, {.endpoint = {.qpn = {next_qpn_++}}}));
                break;
            case EventType::ConnectResponse:
                if (!establishes) break;
                ASSERT(manager.establish(now, id));
                if (hangs_up) ASSERT(manager.disconnect(now, id));
                break;
            case EventType::Established:
                // It may be over already, if a DREQ was the first sign of life.
                if (hangs_up) ASSERT(manager.disconnect(now, id));
                break;
            case EventType::SidrRequest:
                if (accepts) ASSERT(manager.sidr_reply(now, id, {.qpn = {next_qpn_++}}));
                break;
            default:
                if (lets_go) manager.release(now, id);
                break;
        }
    }
}

}  // namespace feroce::cm
