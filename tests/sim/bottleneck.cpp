#include "sim/bottleneck.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace feroce::sim {

using transport::Completion;
using transport::SendOp;
using transport::SendWr;
using transport::WcStatus;

Flow::Flow(Node& source, Node& sink, const LineOptions& line)
    : source_(source),
      sink_(sink),
      line_(line),
      asks_at_sink_(line.op == SendOp::Read),
      near_(make_end(asks_at_sink_ ? sink : source)),
      far_(make_end(asks_at_sink_ ? source : sink)) {}

Flow::End Flow::make_end(Node& node) const {
    const PdId pd = *node.memory().alloc_pd();
    const Range region = node.arena().allocate(kFlowMessageBytes);
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
    std::vector<Completion> polled(64);
    polled.resize(near_.cq->poll(polled));
    for (const Completion& completion : polled) {
        if (completion.status != WcStatus::Success) {
            ++failures_;
            continue;
        }
        bytes_ += kFlowMessageBytes;
        post();
    }
    polled.resize(64);
    polled.resize(far_.cq->poll(polled));
    for (const Completion& completion : polled) {
        if (completion.status != WcStatus::Success)
            ++failures_;
        else
            post_receive();
    }
}

void Flow::post() {
    const mem::Sge sge{near_.node.arena().iova(near_.region.offset), kFlowMessageBytes,
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
    const mem::Sge sge{far_.node.arena().iova(far_.region.offset), kFlowMessageBytes,
                       far_.keys.lkey};
    ASSERT_TRUE(far_.node.engine(0)
                    .post_receive(far_.node.now(), *far_.qp, {.wr_id = 0, .sges = {&sge, 1}})
                    .has_value());
}

Bottleneck::Bottleneck(std::uint32_t flows, const LineOptions& options)
    : options_(options), world_(7) {
    NodeConfig config;
    config.engine.held_bytes_max = options.keeps ? 64 << 20 : 0;
    config.arena_bytes = 2 * kFlowMessageBytes * (flows + 1);
    LinkConfig fast;
    fast.queue_packets = 100'000;
    LinkConfig line = fast;
    line.bits_per_second = static_cast<std::uint64_t>(kLineBitsPerSecond);
    line.delay = options.delay;
    line.queue_packets = 64;
    line.faults.loss = options.loss;
    line.faults.reorder = options.reorder;
    line.faults.reorder_delay = options.delay / 5;
    LinkConfig back = fast;
    if (options.loses_answers) back.faults.loss = options.loss;
    Node& sink = world_.add_node(config, back, line);
    sink.set_application(this);
    ConnectOptions connection;
    connection.path_mtu = options.path_mtu;
    connection.timeout = options.delay > std::chrono::milliseconds(10) ? 17 : 12;  // 17 ms, 0.5 s.
    connection.read_atomic_max = 16;
    Node* source = nullptr;
    for (std::uint32_t i = 0; i < flows; ++i) {
        if (source == nullptr || !options.one_source) {
            source = &world_.add_node(config, fast, fast);
            source->set_application(this);
        }
        flows_.push_back(std::make_unique<Flow>(*source, sink, options));
        flows_.back()->open(connection);
    }
}

std::vector<double> Bottleneck::measure() {
    const Duration start = std::max<Duration>(std::chrono::milliseconds(300), 80 * options_.delay);
    const Duration span = std::max<Duration>(std::chrono::seconds(1), 40 * options_.delay);
    world_.scheduler().run_until(world_.now() + start);
    std::vector<double> rates;
    for (const auto& flow : flows_) rates.push_back(-static_cast<double>(flow->bytes()));
    world_.scheduler().run_until(world_.now() + span);
    for (std::size_t i = 0; i < flows_.size(); ++i) {
        EXPECT_EQ(flows_[i]->failures(), 0U);
        rates[i] = (rates[i] + static_cast<double>(flows_[i]->bytes())) * 8 /
                   std::chrono::duration<double>(span).count();
    }
    return rates;
}

void Bottleneck::on_turn(Node& node) {
    for (auto& flow : flows_)
        if (flow->is_at(node)) flow->turn();
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
