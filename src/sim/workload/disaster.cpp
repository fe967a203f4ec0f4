// What goes wrong during a scenario's chaos, and how it is put right again.
#include <algorithm>

#include "sim/workload/scenario.hpp"

namespace feroce::sim {

using transport::QpType;

Duration Scenario::draw_time(Duration max) {
    return Duration(
        static_cast<Duration::rep>(random_.below(static_cast<std::uint64_t>(max.count()) + 1)));
}

void Scenario::repair_later(Connection& connection, Duration delay) {
    world_.scheduler().after(draw_time(delay), [this, &connection] {
        // After the network healed too: the last retries of a connection may have been lost before.
        if (connection.is_open() && connection.needs_repair()) repair(connection);
    });
}

void Scenario::repair(Connection& connection) {
    if (swarm_.resets && connection.may_reset() && random_.chance(0.7)) {
        connection.reset([this] { drain_all(); });
    } else {
        connection.close([this] { drain_all(); });
    }
    connection.expose(chaos_);
    connection.open();
}

void Scenario::next_disaster() {
    world_.scheduler().after(draw_time(std::chrono::milliseconds(10)), [this] {
        if (!chaos_) return;
        cause_disaster();
        next_disaster();
    });
}

void Scenario::cause_disaster() {
    switch (random_.below(7)) {
        case 0:
            if (swarm_.partitions) partition();
            break;
        case 1:
            if (swarm_.pauses) pause_somebody();
            break;
        case 2:
            if (swarm_.destructions) destroy_something();
            break;
        case 3:
            if (swarm_.drains) drain_something();
            break;
        case 4:
            if (swarm_.receive_losses) lose_receives();
            break;
        case 5:
            if (swarm_.resets) reset_something();
            break;
        default:
            if (swarm_.deregistrations) deregister_something();
            break;
    }
}

void Scenario::partition() {
    const std::size_t place = random_.below(world_.size());
    const std::uint64_t which = 1 + random_.below(3);  // Up, down, both.
    const bool up = (which & 1) != 0;
    const bool down = (which & 2) != 0;
    world_.trace().note(world_.now(), [&] { return "partition of node " + std::to_string(place); });
    if (up) world_.uplink(place).set_blocked(true);
    if (down) world_.downlink(place).set_blocked(true);
    world_.scheduler().after(draw_time(std::chrono::milliseconds(20)), [this, place, up, down] {
        if (up) world_.uplink(place).set_blocked(false);
        if (down) world_.downlink(place).set_blocked(false);
    });
}

void Scenario::pause_somebody() {
    Node& node = world_.node(random_.below(world_.size()));
    if (node.paused()) return;
    world_.trace().note(world_.now(), [&] { return "pause of node " + std::to_string(node.id()); });
    node.pause();
    world_.scheduler().after(draw_time(std::chrono::milliseconds(10)), [&node] { node.resume(); });
}

void Scenario::destroy_something() {
    Connection& connection = *connections_[random_.below(connections_.size())];
    if (!connection.is_open() || connection.needs_repair()) return;
    poll_all();
    if (connection.needs_repair()) return;
    world_.trace().note(world_.now(),
                        [] { return std::string("a queue pair is destroyed mid flight"); });
    connection.destroy_side(random_.below(2), [this] { drain_all(); });
    repair_later(connection, std::chrono::milliseconds(10));
}

// Not datagrams: what is on its way to a queue pair could not be told from what is sent to it
// later.
void Scenario::reset_something() {
    Connection& connection = *connections_[random_.below(connections_.size())];
    if (!connection.plan().reliable() || !connection.may_reset()) return;
    if (!connection.is_open() || connection.needs_repair()) return;
    poll_all();
    if (connection.needs_repair()) return;
    world_.trace().note(world_.now(),
                        [] { return std::string("a connection is reset mid flight"); });
    connection.reset([this] { drain_all(); });
    connection.open();
}

void Scenario::deregister_something() {
    Connection& connection = *connections_[random_.below(connections_.size())];
    if (!connection.plan().reliable() || connection.needs_repair()) return;
    const auto victim = random_.chance(0.5) ? Endpoint::Victim::Local : Endpoint::Victim::Target;
    if (!connection.deregister(random_.below(2), victim)) return;
    world_.trace().note(world_.now(),
                        [] { return std::string("a region is deregistered mid flight"); });
    repair_later(connection, std::chrono::milliseconds(20));
}

void Scenario::drain_something() {
    Connection& connection = *connections_[random_.below(connections_.size())];
    if (!connection.drain()) return;
    world_.trace().note(world_.now(), [] { return std::string("a connection is drained"); });
}

void Scenario::lose_receives() {
    Station& station = *stations_[random_.below(stations_.size())];
    poll_all();
    world_.trace().note(world_.now(),
                        [] { return std::string("an XRC receive queue is destroyed mid flight"); });
    for (auto& connection : connections_) {
        const ConnectionPlan& plan = connection->plan();
        if (plan.type != QpType::XrcInitiator || &connection->side(1).station() != &station)
            continue;
        connection->undermine();
        repair_later(*connection, std::chrono::milliseconds(10));
    }
    station.replace_xrc_srq();
}

}  // namespace feroce::sim
