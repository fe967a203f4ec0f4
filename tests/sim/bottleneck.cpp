#include "sim/bottleneck.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "transport/rc/gap_list.hpp"
#include "wire/packet.hpp"

namespace feroce::sim {

using transport::Completion;
using transport::SendOp;
using transport::SendWr;
using transport::WcStatus;

namespace {

// What says that its sender understands lists of gaps.
bool is_hello(const Frame& frame) {
    wire::Packet packet;
    const bool good = wire::parse_packet(frame.bytes, packet) == wire::ParseError::None;
    return good && transport::rc::is_hello(packet);
}

}  // namespace

Flow::Flow(Node& source, Node& sink, const LineOptions& line)
    : source_(source),
      sink_(sink),
      line_(line),
      asks_at_sink_(line.op == SendOp::Read),
      near_(make_end(asks_at_sink_ ? sink : source)),
      far_(make_end(asks_at_sink_ ? source : sink)) {}

Flow::End Flow::make_end(Node& node) const {
    const PdId pd = *node.memory().alloc_pd();
    const Range region = node.arena().allocate(line_.message_bytes);
    const auto keys = register_range(
        node, pd, region,
        mem::Access::LocalWrite | mem::Access::RemoteWrite | mem::Access::RemoteRead);
    End end{node, pd, region, keys,
            std::make_unique<device::CompletionQueue>(1024, nullptr, nullptr)};
    transport::QpInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = end.cq.get();
    init.capabilities.send_wr_max = init.capabilities.receive_wr_max = 4 * line_.depth;
    end.qp = &**node.engine(0).create_qp(init);
    return end;
}

void Flow::open(const ConnectOptions& options) {
    connect({near_.node, *near_.qp, Psn(1)}, {far_.node, *far_.qp, Psn(2)}, options);
    if (line_.op == SendOp::Send)
        for (std::uint32_t i = 0; i < 4 * line_.depth; ++i) post_receive();
    for (std::uint32_t i = 0; i < line_.depth; ++i) post();
    near_.node.wake();
}

void Flow::turn() {
    std::array<Completion, 16> places;
    while (const std::size_t count = near_.cq->poll(places)) {
        for (const Completion& completion : std::span(places).first(count)) {
            if (completion.status != WcStatus::Success) {
                ++failures_;
                continue;
            }
            bytes_ += line_.message_bytes;
            post();
        }
    }
    while (const std::size_t count = far_.cq->poll(places)) {
        for (const Completion& completion : std::span(places).first(count)) {
            if (completion.status != WcStatus::Success)
                ++failures_;
            else
                post_receive();
        }
    }
}

void Flow::post() {
    const mem::Sge sge{near_.node.arena().iova(near_.region.offset), line_.message_bytes,
                       near_.keys.lkey};
    SendWr wr;
    wr.op = line_.op;
    wr.signaled = true;
    wr.rkey = far_.keys.rkey;
    wr.remote_address = far_.node.arena().iova(far_.region.offset);
    wr.sges = {&sge, 1};
    ASSERT_TRUE(near_.node.engine(0).post_send(near_.node.now(), *near_.qp, wr).has_value());
}

void Flow::post_receive() {
    const mem::Sge sge{far_.node.arena().iova(far_.region.offset), line_.message_bytes,
                       far_.keys.lkey};
    ASSERT_TRUE(far_.node.engine(0)
                    .post_receive(far_.node.now(), *far_.qp, {.wr_id = 0, .sges = {&sge, 1}})
                    .has_value());
}

Bottleneck::Bottleneck(std::uint32_t flows, const LineOptions& options)
    : options_(options), turns_(flows + 1), world_(7) {
    NodeConfig config;
    config.engine.held_bytes_max = options.keeps ? 64 << 20 : 0;
    config.arena_bytes = 2 * options.message_bytes * (flows + 1);
    LinkConfig fast;
    fast.queue_packets = 100'000;
    LinkConfig line = fast;
    line.bits_per_second = static_cast<std::uint64_t>(kLineBitsPerSecond);
    line.delay = options.delay;
    line.queue_packets = options.queue_packets;
    line.faults.loss = options.loss;
    line.faults.reorder = options.reorder;
    line.faults.reorder_delay = options.delay / 5;
    LinkConfig back = fast;
    if (options.loses_answers) back.faults.loss = options.loss;
    if (!options.lists) line.swallows = back.swallows = fast.swallows = is_hello;
    Node& sink = world_.add_node(config, back, line);
    sink.set_application(this);
    ConnectOptions connection;
    connection.path_mtu = options.path_mtu;
    connection.timeout = options.timeout;
    if (options.timeout == 0)
        connection.timeout =
            options.delay > std::chrono::milliseconds(10) ? 17 : 12;  // 0.5 s, 17 ms.
    connection.read_atomic_max = options.reads;
    if (!options.one_source) {  // There may be hundreds of sources.
        config.arena_bytes = 2 * options.message_bytes;
        config.engine.arena_bytes = 128 * 1024;
    }
    Node* source = nullptr;
    for (std::uint32_t i = 0; i < flows; ++i) {
        if (source == nullptr || !options.one_source) {
            source = &world_.add_node(config, fast, fast);
            source->set_application(this);
        }
        flows_.push_back(std::make_unique<Flow>(*source, sink, options));
        Flow& flow = *flows_.back();
        flow.open(connection);
        turns_[flow.asker().id()].push_back(&flow);
        if (options.op == SendOp::Send) turns_[sink.id()].push_back(&flow);
    }
}

std::vector<double> Bottleneck::measure() {
    using std::chrono::milliseconds;
    const auto or_else = [](Duration wanted, Duration other) {
        return wanted != Duration(0) ? wanted : other;
    };
    const Duration start =
        or_else(options_.start, std::max<Duration>(milliseconds(300), 80 * options_.delay));
    const Duration span =
        or_else(options_.span, std::max<Duration>(milliseconds(1000), 40 * options_.delay));
    world_.scheduler().run_until(world_.now() + start);
    std::vector<double> rates;
    for (const auto& flow : flows_) rates.push_back(-static_cast<double>(flow->bytes()));
    const std::uint64_t before = timeouts_so_far();
    world_.scheduler().run_until(world_.now() + span);
    timeouts_ = timeouts_so_far() - before;
    for (std::size_t i = 0; i < flows_.size(); ++i) {
        EXPECT_EQ(flows_[i]->failures(), 0U);
        rates[i] = (rates[i] + static_cast<double>(flows_[i]->bytes())) * 8 /
                   std::chrono::duration<double>(span).count();
    }
    return rates;
}

std::uint64_t Bottleneck::timeouts_so_far() {
    std::uint64_t sum = 0;
    for (std::uint32_t id = 1; id < world_.size(); ++id)
        sum += world_.node(id).engine(0).counters()[transport::Counter::AckTimeouts];
    return sum;
}

void Bottleneck::on_turn(Node& node) {
    for (Flow* flow : turns_[node.id()]) flow->turn();
}

double total(const std::vector<double>& rates) {
    return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double jain(const std::vector<double>& rates) {
    const double sum = total(rates);
    const double squares = std::inner_product(rates.begin(), rates.end(), rates.begin(), 0.0);
    return sum * sum / (static_cast<double>(rates.size()) * squares);
}

}  // namespace feroce::sim
