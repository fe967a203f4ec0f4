#include "sim/workload/scenario.hpp"

#include <algorithm>

namespace feroce::sim {

using transport::Completion;
using transport::WcStatus;

namespace {

// After the network heals: long enough for the slowest timeout to fire and all retries to be made.
constexpr Duration kHealTimeMax = std::chrono::seconds(20);

bool is_receive(const Completion& completion) {
    return static_cast<std::uint8_t>(completion.opcode) >= 128;
}

}  // namespace

Scenario::Scenario(const Swarm& swarm, Hooks hooks)
    : swarm_(swarm),
      hooks_(std::move(hooks)),
      world_(swarm.seed ^ 0x5eed'0001),
      checks_(world_),
      random_(swarm.seed ^ 0x5eed'0002),
      context_{world_, swarm_, checks_, random_} {}

std::uint64_t Scenario::arena_bytes() const {
    const std::uint64_t slot = swarm_.message_max + 64;
    const std::uint64_t endpoint = slot * (2 * (swarm_.depth + 1) + swarm_.receives) + 2048;
    return 16384 + slot * (1 + 4 * swarm_.receives) + endpoint * swarm_.connections.size();
}

void Scenario::build() {
    world_.use_ipv6(swarm_.ipv6);
    NodeConfig config;
    config.shards = swarm_.shards;
    config.exact_hints = swarm_.exact_hints;
    config.rings = swarm_.rings;
    config.arena_bytes = arena_bytes();
    // What is in flight has fewer packets than half of all PSNs, also where these are few.
    constexpr std::uint64_t kSmallPacket = 768;  // As the window counts it.
    constexpr std::uint64_t kWindowMax = Psn::kCount / 8 * kSmallPacket;
    transport::SendWindow::Limits& limits = config.engine.window;
    for (std::uint32_t* most : {&limits.bytes_max, &limits.long_path_bytes_max})
        *most = static_cast<std::uint32_t>(std::min<std::uint64_t>(*most, kWindowMax));
    for (std::uint32_t i = 0; i < swarm_.nodes; ++i) {
        config.engine.held_bytes_max = swarm_.held_bytes_max(i);
        Node& node = world_.add_node(config, swarm_.link, swarm_.link);
        stations_.push_back(std::make_unique<Station>(context_, node));
        stations_.back()->lay_out();
    }
    for (const ConnectionPlan& plan : swarm_.connections) {
        connections_.push_back(
            std::make_unique<Connection>(context_, *stations_[plan.a], *stations_[plan.b], plan));
        connections_.back()->side(0).lay_out();
        connections_.back()->side(1).lay_out();
    }
    checks_.shadow.attach();
    for (auto& station : stations_) {
        station->fill();
        station->register_all();
        station->node().set_application(this);
    }
    world_.scheduler().after_each([this] { check_invariants(); });
}

bool Scenario::run() {
    build();
    run_chaos();
    run_heal();
    drain();
    tear_down();
    return checks_.report.ok();
}

void Scenario::run_chaos() {
    chaos_ = true;
    context_.late_receives = swarm_.late_receives;
    world_.set_faults(swarm_.faults);
    for (auto& connection : connections_) {
        connection->expose(true);
        connection->side(0).allow(swarm_.chaos_operations);
        connection->side(1).allow(swarm_.chaos_operations);
        connection->open();
    }
    next_disaster();
    world_.scheduler().run_until(world_.now() + swarm_.chaos);
    if (hooks_.on_chaos_end) hooks_.on_chaos_end(world_);
    checks_.shadow.check();
    checks_.guards.check();
}

void Scenario::run_heal() {
    chaos_ = false;
    context_.late_receives = false;
    world_.heal();
    world_.trace().note(world_.now(), [] { return std::string("the network heals"); });
    poll_all();
    for (auto& connection : connections_) {
        if (connection->needs_repair()) repair(*connection);
        connection->side(0).allow(swarm_.heal_operations);
        connection->side(1).allow(swarm_.heal_operations);
    }
    if (hooks_.on_healed) hooks_.on_healed(world_);
    for (auto& station : stations_) station->node().wake();
}

void Scenario::drain() {
    const auto all_idle = [this] {
        return std::all_of(connections_.begin(), connections_.end(),
                           [](const auto& c) { return c->idle(); });
    };
    // Asking every event would cost more than the events.
    const Instant end = world_.now() + kHealTimeMax;
    while (!all_idle() && world_.now() < end)
        world_.scheduler().run_until(world_.now() + std::chrono::milliseconds(1));
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        if (connections_[i]->idle()) continue;
        checks_.report.fail(Checks::kProgress, "connection " + std::to_string(i) +
                                                   " did not finish after the network healed: " +
                                                   connections_[i]->side(0).describe() + "; " +
                                                   connections_[i]->side(1).describe());
    }
    if (hooks_.on_drained) hooks_.on_drained(world_);
    checks_.shadow.check();
    checks_.guards.check();
}

void Scenario::tear_down() {
    for (auto& connection : connections_) connection->close([this] { drain_all(); });
    check_everything();
    if (hooks_.on_torn_down) hooks_.on_torn_down(world_);
    for (auto& station : stations_)
        if (hooks_.on_destroyed) hooks_.on_destroyed(station->destroyed());
    for (auto& station : stations_) station->close();
}

void Scenario::check_everything() {
    for (auto& station : stations_) {
        station->shared_pool().take_back_all();
        station->xrc_pool().take_back_all();
        for (std::uint32_t i = 0; i < Station::kFetchWords; ++i)
            checks_.fetch_add.check(station->word(i), station->word_value(i));
    }
    checks_.shadow.check();
    checks_.guards.check();
}

void Scenario::check_invariants() {
    for (auto& connection : connections_) {
        for (std::size_t i = 0; i < 2; ++i) {
            Endpoint& end = connection->side(i);
            if (end.is_open()) checks_.invariants.check(end.node(), *end.qp());
        }
        connection->check_depth();
    }
}

void Scenario::on_turn(Node& node) {
    poll(*stations_[node.id()]);
    for (auto& connection : connections_) {
        for (std::size_t i = 0; i < 2; ++i) {
            if (connection->is_open() && connection->side(i).node() == node.id())
                connection->side(i).turn();
        }
    }
}

void Scenario::on_qp_event(Node& node, transport::QueuePair& qp, transport::AsyncEventType type) {
    // The engine is in the midst of something: what follows from an event happens later.
    for (auto& connection : connections_) {
        if (type != transport::AsyncEventType::SendQueueDrained || !connection->note_drained(qp))
            continue;
        world_.scheduler().after(draw_time(std::chrono::milliseconds(2)),
                                 [&drained = *connection] { drained.resume(); });
    }
    if (hooks_.on_event) hooks_.on_event(node, qp, type);
}

// As a program that polls does: completions that wait for an acknowledgement come with the run.
void Scenario::drain_all() {
    for (auto& station : stations_) {
        Node& node = station->node();
        for (std::uint32_t i = 0; i < node.shards(); ++i) node.engine(i).run(node.now());
    }
    poll_all();
}

void Scenario::poll_all() {
    for (auto& station : stations_) poll(*station);
}

void Scenario::poll(Station& station) {
    for (device::CompletionQueue* cq :
         {&station.send_cq(), &station.receive_cq(), &station.xrc_cq()})
        poll(station.node(), *cq);
    for (auto& connection : connections_) {
        for (std::size_t i = 0; i < 2; ++i) {
            Endpoint& end = connection->side(i);
            if (&end.station() == &station && end.own_cq() != nullptr)
                poll(station.node(), *end.own_cq());
        }
    }
}

void Scenario::poll(Node& node, device::CompletionQueue& cq) {
    std::vector<Completion> polled(64);
    while (true) {
        polled.resize(64);
        polled.resize(cq.poll(polled));
        if (polled.empty()) break;
        if (hooks_.on_polled) hooks_.on_polled(node, polled);
        for (const Completion& completion : polled) dispatch(node, completion);
    }
}

void Scenario::dispatch(Node& node, const Completion& completion) {
    ++completions_[completion.status];
    world_.trace().value(world_.now(), TraceEvent::Completed, node.id(),
                         completion.wr_id << 8 | static_cast<std::uint8_t>(completion.status));
    world_.trace().note(world_.now(), [&] {
        return std::string(is_receive(completion) ? "receive " : "request ") +
               std::to_string(completion.wr_id) + " of node " + std::to_string(node.id()) +
               " completes with status " + std::to_string(static_cast<int>(completion.status));
    });
    for (auto& connection : connections_) {
        for (std::size_t i = 0; i < 2; ++i) {
            Endpoint& end = connection->side(i);
            if (!end.is_open() || end.node() != node.id()) continue;
            if (end.qp()->qpn() != completion.qpn) continue;
            const Allowance allowance = connection->allowance(i);
            if (is_receive(completion)) {
                end.on_receive_completion(completion, allowance);
            } else {
                end.on_send_completion(completion, allowance);
            }
            if (completion.status != WcStatus::Success && !connection->broken()) {
                connection->note_failure();
                repair_later(*connection, std::chrono::milliseconds(3));
            }
            return;
        }
    }
    checks_.report.fail(CompletionChecker::kName,
                        "node " + std::to_string(node.id()) + ": completion " +
                            std::to_string(completion.wr_id) + " of no living queue pair");
}

}  // namespace feroce::sim
