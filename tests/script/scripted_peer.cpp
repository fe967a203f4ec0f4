#include "scripted_peer.hpp"

namespace feroce::script {

void CapturePort::transmit(std::span<const transport::TransmitRun> runs) {
    record_placed();
    for (const transport::TransmitRun& run : runs) {
        for (std::size_t at = 0; at < run.bytes.size(); at += run.segment_size)
            record(run.bytes.subspan(
                at, std::min<std::size_t>(run.segment_size, run.bytes.size() - at)));
    }
}

std::optional<transport::RunSink::Unread> CapturePort::unread(SlotNumber) {
    if (!looks_until_read) return std::nullopt;
    if (*looks_until_read == 0) return Unread{};
    --*looks_until_read;
    return Unread{0, transport::SendWindow::Limits{}.ring_bytes};
}

ByteSpan CapturePort::place(const transport::Path&, SlotNumber, std::size_t size, std::uint32_t) {
    record_placed();
    placed.resize(size);
    ++places;
    return placed;
}

void CapturePort::record_placed() {
    if (!placed.empty()) record(placed);
    placed.clear();
}

void CapturePort::record(ByteView bytes) {
    SentPacket packet;
    packet.bytes.assign(bytes.begin(), bytes.end());
    EXPECT_EQ(wire::parse_packet(packet.bytes, packet.packet), wire::ParseError::None);
    sent.push_back(std::move(packet));
}

AttributeMask mask(std::initializer_list<Attribute> attributes) {
    AttributeMask result;
    for (const Attribute a : attributes) result.raw |= static_cast<std::uint32_t>(a);
    return result;
}

Engine::Config ScriptedPeer::config(const QpOptions& options) {
    Engine::Config config;
    config.verify_icrc = options.verify_icrc;
    config.held_bytes_max = options.keeps_packets ? 8 << 20 : 0;
    return config;
}

ScriptedPeer::ScriptedPeer(const QpOptions& options)
    : engine(config(options), {table, xrc, port, events, random}), options_(options) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i % 251);
    mem::RegionSpec spec;
    spec.pd = pd;
    spec.address = memory.data();
    spec.length = memory.size();
    spec.iova = address();
    spec.access = mem::AccessSet(15);
    keys = *table.register_region(spec);
    port.has_ring = port.ring_room = options.ring;
    connect();
}

void ScriptedPeer::connect() {
    transport::QpInit init;
    init.type = options_.type;
    init.pd = pd;
    init.send_cq = init.receive_cq = &cq;
    if (options_.type == QpType::XrcTarget) {
        init.xrc_domain = xrc.create();
        srq_number = *xrc.register_srq(srq, init.xrc_domain, cq);
    }
    init.capabilities = {options_.send_wr_max, options_.receive_wr_max, 4, 4, options_.inline_max};
    qp = *engine.create_qp(init);
    bring_up();
}

void ScriptedPeer::restart() {
    ASSERT_TRUE(modify(QpState::Reset));
    bring_up();
}

void ScriptedPeer::bring_up() {
    QpAttributes a;
    a.qkey = kQkey;
    a.access = mem::AccessSet(options_.access);
    a.address.source = kOurs;
    a.address.destination = kPeers;
    a.path_mtu = kMtu;
    a.destination_qpn = kPeerQpn;
    a.receive_psn = kReceivePsn;
    a.dest_read_atomic_max = options_.dest_read_atomic_max;
    a.min_rnr_timer = 12;  // 0.64 ms.
    a.send_psn = options_.send_psn;
    a.timeout = options_.timeout;
    a.retry_count = options_.retry_count;
    a.rnr_retry = options_.rnr_retry;
    a.read_atomic_max = options_.read_atomic_max;
    for (const QpState to : {QpState::Init, QpState::Rtr, QpState::Rts}) {
        AttributeMask given = transport::transition(options_.type, qp->state(), to).required;
        given.raw |= static_cast<std::uint32_t>(Attribute::State);
        a.state = to;
        ASSERT_TRUE(engine.modify_qp(now, *qp, a, given));
        if (to == options_.state) break;
    }
}

Result<void> ScriptedPeer::modify(QpState to) {
    QpAttributes a;
    a.state = to;
    a.drain_notify = true;
    return engine.modify_qp(now, *qp, a,
                            to == QpState::Sqd ? mask({Attribute::State, Attribute::DrainNotify})
                                               : mask({Attribute::State}));
}

void ScriptedPeer::after(Duration pause) {
    now += pause;
    do {
        engine.run(now);
    } while (engine.has_work());
    if (qp == nullptr) return;
    const char* broken = qp->machine().check_invariants();
    EXPECT_EQ(broken, nullptr) << broken;
}

void ScriptedPeer::peer_sends(Opcode opcode, Psn psn, const Spec& spec) {
    peer_delivers(opcode, psn, spec);
    run();
}

void ScriptedPeer::peer_delivers(Opcode opcode, Psn psn, const Spec& spec) {
    ASSERT(spec.payload.empty() || spec.payload.size() == spec.payload_size);
    std::vector<std::byte> bytes(wire::packet_size(opcode, spec.payload_size));
    wire::Bth bth;
    bth.opcode = opcode;
    bth.destination = qp->qpn();
    bth.psn = psn;
    bth.ack_request = spec.ack_request;
    bth.solicited = spec.solicited;
    bth.pad_count = static_cast<std::uint8_t>(wire::pad_of(spec.payload_size));
    const std::size_t headers = wire::emit_headers(bytes, bth, spec.extensions);
    const auto payload = bytes.begin() + static_cast<std::ptrdiff_t>(headers);
    std::fill_n(payload, spec.payload_size, spec.fill);
    std::copy(spec.payload.begin(), spec.payload.end(), payload);
    engine.receive(now, {bytes, peer_address, kOurs, peer_port, 0, 0, 64,
                         /*sealed=*/!peer_sends_by_ring, spec.packets});
}

void ScriptedPeer::peer_acks(Psn psn, std::uint8_t credits, std::uint32_t msn) {
    Spec spec;
    spec.extensions.aeth = {wire::Syndrome::ack(credits), msn};
    peer_sends(Opcode::RcAck, psn, spec);
}

void ScriptedPeer::peer_naks(Psn psn, wire::NakCode code) {
    Spec spec;
    spec.extensions.aeth = {wire::Syndrome::nak(code), 0};
    peer_sends(Opcode::RcAck, psn, spec);
}

void ScriptedPeer::peer_rnr(Psn psn, std::uint8_t timer) {
    Spec spec;
    spec.extensions.aeth = {wire::Syndrome::rnr(timer), 0};
    peer_sends(Opcode::RcAck, psn, spec);
}

void ScriptedPeer::peer_lists(Psn base,
                              std::array<std::uint16_t, transport::rc::GapList::kRuns> runs) {
    std::array<std::byte, transport::rc::GapList::kSize> payload{};
    transport::rc::GapList{base, runs}.store(payload);
    Spec spec;
    spec.extensions.aeth = {wire::Syndrome::ack(wire::kNoCredits), 0};
    spec.payload_size = payload.size();
    spec.payload = payload;
    peer_sends(Opcode::RcAck, kSendPsn - 1, spec);
}

void ScriptedPeer::peer_says_hello() {
    peer_sends(Opcode::RcWriteOnly, kReceivePsn - 1,
               {.extensions = {.reth = transport::rc::hello()}, .ack_request = false});
}

SentPacket ScriptedPeer::expect_sent(Opcode opcode, Psn psn, Line line) {
    const testing::ScopedTrace script(line.file, line.number, "what the script expects");
    if (port.sent.empty()) {
        ADD_FAILURE() << "nothing was sent; expected " << wire::opcode_info(opcode).name;
        return {};
    }
    SentPacket packet = std::move(port.sent.front());
    port.sent.pop_front();
    EXPECT_STREQ(packet.packet.info->name, wire::opcode_info(opcode).name);
    EXPECT_EQ(packet.packet.bth.psn.raw(), psn.raw());
    EXPECT_EQ(packet.packet.bth.destination, kPeerQpn);
    return packet;
}

void ScriptedPeer::expect_ack(Psn psn, wire::Syndrome::Kind kind, Line line) {
    const SentPacket ack = expect_sent(Opcode::RcAck, psn, line);
    const testing::ScopedTrace script(line.file, line.number, "what the script expects");
    ASSERT_TRUE(ack.packet.info != nullptr && ack.packet.info->has(wire::Header::Aeth));
    EXPECT_EQ(ack.packet.aeth().syndrome.kind(), kind);
}

void ScriptedPeer::expect_nak(Psn psn, wire::NakCode code, Line line) {
    const SentPacket ack = expect_sent(Opcode::RcAck, psn, line);
    const testing::ScopedTrace script(line.file, line.number, "what the script expects");
    ASSERT_TRUE(ack.packet.info != nullptr && ack.packet.info->has(wire::Header::Aeth));
    EXPECT_EQ(ack.packet.aeth().syndrome, wire::Syndrome::nak(code));
}

void ScriptedPeer::expect_silence(Line line) {
    const testing::ScopedTrace script(line.file, line.number, "what the script expects");
    EXPECT_TRUE(port.sent.empty()) << "sent " << port.sent.front().packet.info->name;
}

SendWr ScriptedPeer::send_wr(SendOp op, std::uint32_t length, std::uint64_t wr_id) {
    sge_ = {address(), length, keys.lkey};
    SendWr wr;
    wr.wr_id = wr_id;
    wr.op = op;
    wr.signaled = true;
    wr.sges = {&sge_, 1};
    wr.remote_address = 0x10000;
    wr.rkey = RKey{77};
    wr.immediate = 0x11223344;
    wr.compare_add = 5;
    wr.swap = 6;
    return wr;
}

void ScriptedPeer::post(SendOp op, std::uint32_t length, std::uint64_t wr_id, bool signaled) {
    SendWr wr = send_wr(op, length, wr_id);
    wr.signaled = signaled;
    ASSERT_TRUE(engine.post_send(now, *qp, wr));
    run();
}

void ScriptedPeer::post_receive(std::uint32_t length, std::uint64_t wr_id) {
    const mem::Sge sge{address(), length, keys.lkey};
    ASSERT_TRUE(engine.post_receive(now, *qp, {wr_id, {&sge, 1}}));
}

std::optional<Completion> ScriptedPeer::poll() {
    Completion completion;
    if (cq.poll({&completion, 1}) == 0) return {};
    return completion;
}

void ScriptedPeer::expect_completion(std::uint64_t wr_id, WcStatus status, Line line) {
    const testing::ScopedTrace script(line.file, line.number, "what the script expects");
    const std::optional<Completion> completion = poll();
    ASSERT_TRUE(completion.has_value()) << "no completion; expected that of " << wr_id;
    EXPECT_EQ(completion->wr_id, wr_id);
    EXPECT_EQ(static_cast<int>(completion->status), static_cast<int>(status));
    EXPECT_EQ(completion->reason != 0, status != WcStatus::Success);
}

void ScriptedPeer::expect_no_completion(Line line) {
    const testing::ScopedTrace script(line.file, line.number, "what the script expects");
    const std::optional<Completion> completion = poll();
    EXPECT_FALSE(completion.has_value()) << "unexpected completion of " << completion->wr_id;
}

}  // namespace feroce::script
