#include "engine_pair.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "wire/icrc.hpp"

namespace feroce::bench {

using transport::Attribute;
using transport::AttributeMask;
using transport::QpAttributes;
using transport::QpState;
using transport::SendOp;

namespace {

constexpr std::size_t kBufferBytes = 4 << 20;

void modify(Party& self, transport::QueuePair& qp, QpAttributes& attributes, QpState to,
            std::uint32_t mask) {
    attributes.state = to;
    const AttributeMask full{mask | static_cast<std::uint32_t>(Attribute::State)};
    const Instant now{std::chrono::seconds(1)};
    ASSERT(self.engine().modify_qp(now, qp, attributes, full).has_value());
}

constexpr std::uint32_t bits(std::initializer_list<Attribute> attributes) {
    std::uint32_t mask = 0;
    for (Attribute a : attributes) mask |= static_cast<std::uint32_t>(a);
    return mask;
}

void bring_up(Party& self, transport::QueuePair& qp, Party& peer, Qpn peer_qpn) {
    QpAttributes a;
    a.path_mtu = 4096;
    a.destination_qpn = peer_qpn;
    a.access = mem::Access::RemoteWrite | mem::Access::RemoteRead | mem::Access::RemoteAtomic;
    a.address.source = self.address();
    a.address.destination = peer.address();
    a.read_atomic_max = a.dest_read_atomic_max = 16;
    a.timeout = 14;
    a.retry_count = a.rnr_retry = 7;
    modify(self, qp, a, QpState::Init,
           bits({Attribute::PkeyIndex, Attribute::Port, Attribute::AccessFlags}));
    modify(self, qp, a, QpState::Rtr,
           bits({Attribute::AddressVector, Attribute::PathMtu, Attribute::DestinationQpn,
                 Attribute::ReceivePsn, Attribute::MaxDestReadAtomic, Attribute::MinRnrTimer}));
    modify(self, qp, a, QpState::Rts,
           bits({Attribute::Timeout, Attribute::RetryCount, Attribute::RnrRetry, Attribute::SendPsn,
                 Attribute::MaxReadAtomic}));
}

bool consumes_receive(SendOp op) {
    return op == SendOp::Send || op == SendOp::SendImmediate || op == SendOp::WriteImmediate;
}

}  // namespace

BufferPort::BufferPort() : bytes_(kBufferBytes) {
    packets_.reserve(65536);
}

void BufferPort::transmit(std::span<const transport::TransmitRun> runs) {
    for (const auto& run : runs) {
        const wire::DatagramAddress address{
            .source = run.path.source,
            .destination = run.path.destination,
            .source_port = static_cast<std::uint16_t>(0xc000 | (run.path.flow & 0x3fff))};
        wire::seal_run(address, run.bytes, run.segment_size);
        ASSERT(used_ + run.bytes.size() <= bytes_.size());
        std::copy(run.bytes.begin(), run.bytes.end(),
                  bytes_.begin() + static_cast<std::ptrdiff_t>(used_));
        std::uint16_t id = 0;
        for (std::size_t at = 0; at < run.bytes.size(); at += run.segment_size, ++id) {
            const std::size_t size = std::min<std::size_t>(run.segment_size, run.bytes.size() - at);
            packets_.push_back(
                {used_ + at, size, id, address.source, address.destination, address.source_port});
        }
        used_ += run.bytes.size();
    }
}

void BufferPort::hand_to(Instant now, device::Engine& engine) {
    const auto bytes_of = [this](const Packet& packet) {
        return ByteView(bytes_).subspan(packet.offset, packet.size);
    };
    if (!packets_.empty()) engine.expect(bytes_of(packets_.front()));
    for (std::size_t i = 0; i < packets_.size(); ++i) {
        const Packet& packet = packets_[i];
        if (i + 1 < packets_.size()) engine.expect(bytes_of(packets_[i + 1]));
        engine.receive(now, {.bytes = bytes_of(packet),
                             .source = packet.source,
                             .destination = packet.destination,
                             .source_port = packet.source_port,
                             .id_hint = packet.id});
    }
    forget();
}

void BufferPort::forget() {
    packets_.clear();
    used_ = 0;
}

Party::Party(const Gid& address, std::uint64_t seed)
    : address_(address),
      random_(seed),
      words_(kMemoryBytes / 8),
      memory_(mem::Limits{}, random_),
      cq_(1 << 17, nullptr, nullptr),
      pd_(*memory_.alloc_pd()) {
    using mem::Access;
    keys_ = *memory_.register_region({.pd = pd_,
                                      .address = words_.data(),
                                      .length = kMemoryBytes,
                                      .iova = memory_address(),
                                      .access = Access::LocalWrite | Access::RemoteWrite |
                                                Access::RemoteRead | Access::RemoteAtomic});
    engine_ = std::make_unique<device::Engine>(
        device::Engine::Config{}, device::Engine::Parts{memory_, xrc_, port_, *this, random_});
}

transport::QueuePair& Party::create_qp() {
    transport::QpInit init;
    init.pd = pd_;
    init.send_cq = init.receive_cq = &cq_;
    init.capabilities = {.send_wr_max = EnginePair::kQueueDepth,
                         .receive_wr_max = EnginePair::kQueueDepth};
    return **engine_->create_qp(init);
}

std::uint32_t Party::poll() {
    std::uint32_t total = 0;
    while (const std::uint32_t count = cq_.poll(polled_)) {
        for (std::uint32_t i = 0; i < count; ++i)
            ASSERT(polled_[i].status == transport::WcStatus::Success);
        total += count;
    }
    return total;
}

EnginePair::EnginePair(std::uint32_t qps, std::uint32_t burst)
    : a_(Gid::from_v4(0x7f00'0001), 1), b_(Gid::from_v4(0x7f00'0002), 2), burst_(burst) {
    for (std::uint32_t i = 0; i < qps; ++i) {
        transport::QueuePair& qa = a_.create_qp();
        transport::QueuePair& qb = b_.create_qp();
        bring_up(a_, qa, b_, qb.qpn());
        bring_up(b_, qb, a_, qa.qpn());
        qps_.emplace_back(&qa, &qb);
    }
    // In no order that a processor could guess the next one from.
    Prng random(3);
    for (std::size_t i = qps_.size(); i > 1; --i) std::swap(qps_[i - 1], qps_[random.below(i)]);
}

void EnginePair::post(SendOp op, std::uint32_t bytes) {
    const auto [qa, qb] = qps_[posted_++ / burst_ % qps_.size()];
    const mem::Sge local{a_.memory_address(), bytes, a_.keys().lkey};
    if (consumes_receive(op)) {
        const mem::Sge target{b_.memory_address(), bytes, b_.keys().lkey};
        ASSERT(b_.engine().post_receive(now_, *qb, {0, {&target, 1}}).has_value());
    }
    transport::SendWr wr;
    wr.op = op;
    wr.signaled = true;
    wr.remote_address = b_.memory_address();
    wr.rkey = b_.keys().rkey;
    wr.compare_add = 1;
    wr.sges = {&local, 1};
    ASSERT(a_.engine().post_send(now_, *qa, wr).has_value());
}

std::uint32_t EnginePair::settle() {
    do {
        now_ += std::chrono::microseconds(10);
        run_a();
        carry_to_b();
        run_b();
        carry_to_a();
    } while (a_.engine().has_work() || b_.engine().has_work());
    b_.poll();
    return a_.poll();
}

}  // namespace feroce::bench
