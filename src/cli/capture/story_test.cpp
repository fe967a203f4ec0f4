#include "cli/capture/story.hpp"

#include <gtest/gtest.h>

#include "wire/cm_path_messages.hpp"
#include "wire/cma.hpp"

namespace feroce::cli::story_test {
namespace {

using namespace std::chrono_literals;
using wire::NakCode;
using wire::Opcode;
using wire::Syndrome;

const Gid kA = Gid::from_v4(0x0a00'0001), kB = Gid::from_v4(0x0a00'0002);
constexpr std::uint32_t kQpA = 0x11, kQpB = 0x22;

// Tells a story packet by packet.
class Teller {
public:
    explicit Teller(std::size_t flows_max = CaptureStory::kFlowsMax) : story(flows_max) {}

    // How the packets that follow are.
    Duration pause = 1ms;
    bool spoil_icrc = false;
    std::uint8_t traffic_class = 0;
    std::size_t cut_to = 0;  // Bytes that the capture keeps; 0: all.

    void send(const Gid& from, const Gid& to, std::uint32_t qpn, Opcode opcode, std::uint32_t psn,
              const wire::Extensions& extensions = {}, std::size_t payload = 0) {
        std::vector<std::byte> packet(wire::packet_size(opcode, payload));
        wire::Bth bth{};
        bth.opcode = opcode;
        bth.psn = Psn(psn);
        bth.destination = Qpn{qpn};
        bth.pad_count = static_cast<std::uint8_t>(wire::pad_of(payload));
        wire::emit_headers(packet, bth, extensions);
        deliver(from, to, std::move(packet));
    }
    void request(Opcode opcode, std::uint32_t psn, const wire::Extensions& extensions = {},
                 std::size_t payload = 0) {
        send(kA, kB, kQpB, opcode, psn, extensions, payload);
    }
    void answer(std::uint32_t psn, Syndrome syndrome = Syndrome::ack(wire::kNoCredits)) {
        wire::Extensions extensions;
        extensions.aeth.syndrome = syndrome;
        send(kB, kA, kQpA, Opcode::RcAck, psn, extensions);
    }
    template <class Message>
    void manage(const Gid& from, const Gid& to, const Message& message) {
        const wire::MadBytes mad = wire::make_cm_mad(1, message);
        std::vector<std::byte> packet(wire::packet_size(Opcode::UdSendOnly, mad.size()));
        wire::Bth bth{};
        bth.opcode = Opcode::UdSendOnly;
        bth.destination = kGeneralServicesQpn;
        const std::size_t at = wire::emit_headers(packet, bth, {});
        std::copy(mad.begin(), mad.end(), packet.begin() + static_cast<std::ptrdiff_t>(at));
        deliver(from, to, std::move(packet));
    }
    void deliver(const Gid& from, const Gid& to, std::vector<std::byte> packet) {
        wire::RoceDatagram datagram;
        datagram.address = {from, to, 50'000};
        datagram.ipv4_id = ++id_;
        datagram.traffic_class = traffic_class;
        wire::seal(datagram.address, datagram.ipv4_id, packet);
        if (spoil_icrc) packet.back() ^= std::byte{1};
        datagram.udp_payload = packet;
        story.on_datagram(now_, datagram, cut_to == 0 ? packet.size() : cut_to);
        now_ += pause;
    }
    void wait(Duration time) {
        now_ += time;
        story.on_time(now_);
    }

    // All sentences, in a line each.
    std::string told() {
        std::string out;
        for (const CaptureFinding& finding : story.finish())
            out +=
                std::array{"FAILED ", "doubt ", "note "}[static_cast<std::size_t>(finding.kind)] +
                finding.sentence + " | " + finding.because + "\n";
        return out;
    }

    CaptureStory story;

private:
    Duration now_ = 1'700'000'000s;
    std::uint16_t id_ = 0;
};

void expect(const std::string& told, std::initializer_list<const char*> wanted) {
    for (const char* words : wanted)
        EXPECT_NE(told.find(words), std::string::npos) << words << "\nis not in\n" << told;
}

wire::Extensions memory(std::uint64_t address, std::uint32_t key, std::uint32_t length) {
    wire::Extensions out;
    out.reth = {.address = address, .rkey = {key}, .length = length};
    return out;
}

TEST(CaptureStory, OfAHealthyConnectionIsEmpty) {
    Teller teller;
    teller.request(Opcode::RcSendOnly, 5);
    teller.answer(5);
    teller.request(Opcode::RcWriteOnly, 6, memory(1, 2, 0));
    teller.answer(6);
    EXPECT_EQ(teller.told(), "");
    EXPECT_EQ(teller.story.counts().connections, 1U);
    EXPECT_EQ(teller.story.counts().packets, 4U);
    EXPECT_EQ(teller.story.counts().half, 0U);
}

TEST(CaptureStory, NamesKeyAddressAndLengthOfARefusedRequest) {
    Teller teller;
    teller.request(Opcode::RcWriteFirst, 0xff'ffff, memory(0xabc000, 0x1234, 2048), 1024);
    teller.request(Opcode::RcWriteLast, 0, {}, 1024);
    teller.answer(0, Syndrome::nak(NakCode::RemoteAccess));
    expect(teller.told(),
           {"FAILED a work request of QP 0x000011 failed at PSN 0 (IBV_WC_REM_ACCESS_ERR): the "
            "peer refused the request (an RDMA WRITE of 2048 bytes at 0xabc000 with key "
            "0x00001234); the peer answered with NAK remote access error; the peer is QP 0x000022 "
            "at 10.0.0.2",
            "the region lacks IBV_ACCESS_REMOTE_WRITE"});
}

TEST(CaptureStory, KnowsKeysThatWereInvalidated) {
    Teller teller;
    wire::Extensions invalidate;
    invalidate.invalidate = RKey{0x77};
    teller.request(Opcode::RcSendOnlyInvalidate, 1, invalidate);
    teller.answer(1);
    teller.request(Opcode::RcReadRequest, 2, memory(0, 0x77, 8));
    teller.answer(2, Syndrome::nak(NakCode::RemoteAccess));
    expect(teller.told(), {"an RDMA READ of 8 bytes", "the key 0x00000077 was invalidated before"});
}

TEST(CaptureStory, KnowsAMisalignedAtomic) {
    Teller teller;
    wire::Extensions atomic;
    atomic.atomic = {.address = 12, .rkey = {1}, .swap_or_add = 1, .compare = 0};
    teller.request(Opcode::RcFetchAdd, 1, atomic);
    teller.answer(1, Syndrome::nak(NakCode::InvalidRequest));
    expect(teller.told(), {"IBV_WC_REM_INV_REQ_ERR", "an atomic on 8 bytes at 0xc",
                           "the address of an atomic is not a multiple of eight"});
}

TEST(CaptureStory, ARefusedSendMayBeTooLong) {
    Teller teller;
    teller.request(Opcode::RcSendOnly, 1, {}, 64);
    teller.answer(1, Syndrome::nak(NakCode::RemoteOperational));
    expect(teller.told(), {"IBV_WC_REM_OP_ERR", "(a SEND)", "too short for the message"});
}

TEST(CaptureStory, RnrThatRanOutAndThatDidNot) {
    Teller ran_out;
    for (int i = 0; i < 3; ++i) {
        ran_out.request(Opcode::RcSendOnly, 9);
        ran_out.answer(9, Syndrome::rnr(12));
    }
    ran_out.wait(10s);
    expect(ran_out.told(), {"FAILED a work request of QP 0x000011 failed at PSN 9 "
                            "(IBV_WC_RNR_RETRY_EXC_ERR): the peer had no receive posted (2 "
                            "retries)"});

    Teller unknown;
    unknown.request(Opcode::RcSendOnly, 9);
    unknown.answer(9, Syndrome::rnr(12));
    expect(unknown.told(),
           {"doubt", "the peer had no receive posted (0 retries); the capture ends"});

    Teller went_on;
    went_on.request(Opcode::RcSendOnly, 9);
    went_on.answer(9, Syndrome::rnr(12));
    went_on.request(Opcode::RcSendOnly, 9);
    went_on.answer(9);
    EXPECT_EQ(went_on.told(),
              "note QP 0x000022 had no receive posted 1 time: it asked the peer to wait, and the "
              "peer sent again | \n");
}

TEST(CaptureStory, ASilentPeer) {
    Teller teller;
    teller.request(Opcode::RcSendOnly, 1);
    teller.answer(1);
    for (int i = 0; i < 8; ++i) teller.request(Opcode::RcSendOnly, 2);
    teller.wait(10s);
    expect(teller.told(), {"FAILED a work request of QP 0x000011 failed at PSN 2 "
                           "(IBV_WC_RETRY_EXC_ERR): the peer did not acknowledge (7 retries); it "
                           "was heard before; the peer is QP 0x000022 at 10.0.0.2"});

    Teller never;
    for (int i = 0; i < 3; ++i) never.request(Opcode::RcSendOnly, 2);
    expect(never.told(), {"doubt the queue pair sends PSN 2 again",
                          "nothing was ever heard from it", "the capture ends before it shows"});
}

TEST(CaptureStory, OneRequestWithoutAnswerIsNoFailure) {
    Teller teller;
    teller.request(Opcode::RcSendOnly, 1);
    teller.wait(60s);
    EXPECT_EQ(teller.told(), "");
    EXPECT_EQ(teller.story.counts().unanswered, 1U);
}

TEST(CaptureStory, AnswersThatAreLostBehindTheCapture) {
    Teller teller;
    teller.request(Opcode::RcSendOnly, 1);
    teller.answer(1);
    teller.request(Opcode::RcSendOnly, 1);
    teller.answer(1);
    teller.request(Opcode::RcSendOnly, 1);
    teller.wait(10s);
    expect(teller.told(), {"FAILED QP 0x000011 sends what was answered again (2 packets)",
                           "its answers are lost on the way back from 10.0.0.2 to 10.0.0.1"});
}

TEST(CaptureStory, DisagreeingPsnsInEitherDirection) {
    Teller ahead;
    for (int i = 0; i < 3; ++i) {
        ahead.request(Opcode::RcSendOnly, 1000);
        ahead.answer(4999);
    }
    expect(ahead.told(), {"FAILED",
                          "QP 0x000022 expects PSN 5000, its rq_psn, but the packets of "
                          "its peer at 10.0.0.1 begin with PSN 1000"});
    Teller behind;
    for (int i = 0; i < 3; ++i) {
        behind.request(Opcode::RcSendOnly, 1000);
        behind.answer(500, Syndrome::nak(NakCode::SequenceError));
    }
    expect(behind.told(), {"FAILED", "expects PSN 500, its rq_psn"});
}

TEST(CaptureStory, LossThatIsMendedIsNoFailure) {
    Teller teller;
    for (const std::uint32_t psn : {1, 2, 3}) teller.request(Opcode::RcSendOnly, psn);
    teller.answer(2, Syndrome::nak(NakCode::SequenceError));
    for (const std::uint32_t psn : {2, 3}) teller.request(Opcode::RcSendOnly, psn);
    teller.answer(3);
    EXPECT_EQ(teller.told(),
              "note QP 0x000011 sent 2 packets again (1 asked for by a sequence NAK, 0 answered "
              "before), and went on | \n");
}

TEST(CaptureStory, CountsPacketsThatTheCaptureMisses) {
    Teller teller;
    for (const std::uint32_t psn : {1, 4}) teller.request(Opcode::RcSendOnly, psn);
    teller.answer(4);
    EXPECT_EQ(teller.told(), "");
    EXPECT_EQ(teller.story.counts().missing, 2U);
}

TEST(CaptureStory, AReadTakesAsManyPsnsAsItsAnswer) {
    Teller teller;
    teller.request(Opcode::RcWriteFirst, 1, memory(0, 1, 2048), 1024);  // Shows the path MTU.
    teller.request(Opcode::RcWriteLast, 2, {}, 1024);
    teller.request(Opcode::RcReadRequest, 3, memory(0, 1, 3000));
    teller.request(Opcode::RcSendOnly, 6);
    teller.answer(6);
    EXPECT_EQ(teller.told(), "");
}

TEST(CaptureStory, WrongIcrcs) {
    Teller some;
    some.request(Opcode::RcSendOnly, 1);
    some.spoil_icrc = true;
    some.request(Opcode::RcSendOnly, 2);
    expect(some.told(), {"FAILED 1 of 2 packets from 10.0.0.1 to 10.0.0.2 have a wrong ICRC"});

    Teller all;
    all.spoil_icrc = true;
    all.request(Opcode::RcSendOnly, 1);
    all.request(Opcode::RcSendOnly, 2);
    expect(all.told(), {"FAILED 2 of 2", "address translation or segmentation by hardware"});

    Teller answered;
    answered.spoil_icrc = true;
    answered.request(Opcode::RcSendOnly, 1);
    answered.spoil_icrc = false;
    answered.answer(1);
    expect(answered.told(), {"note all 1 packets from 10.0.0.1 to 10.0.0.2 have a wrong ICRC in "
                             "the capture, but are answered"});
}

TEST(CaptureStory, CongestionIsTold) {
    Teller teller;
    teller.traffic_class = 3;
    teller.request(Opcode::RcSendOnly, 1);
    teller.traffic_class = 0;
    teller.answer(1);
    teller.send(kB, kA, kQpA, Opcode::Cnp, 0, {}, 16);
    expect(teller.told(), {"note 1 of 1 packets from 10.0.0.1 to 10.0.0.2 were marked",
                           "note 1 CNP from 10.0.0.2 to 10.0.0.1"});
}

wire::CmReq request_for_port(std::uint16_t port) {
    wire::CmReq req;
    req.local_id = {0x500};
    req.local_qpn = {kQpA};
    req.service_id = wire::make_service_id(wire::PortSpace::Tcp, port);
    req.starting_psn = Psn(700);
    req.path_mtu = 3;
    req.rnr_retry_count = 1;
    wire::CmaHeader::make(kA, kB, 40'000)
        .emit(std::span(req.private_data).first<wire::CmaHeader::kSize>());
    return req;
}

TEST(CaptureStory, RefusedConnections) {
    Teller teller;
    teller.manage(kA, kB, request_for_port(7471));
    wire::CmRej rej;
    rej.remote_id = {0x500};
    rej.reason = wire::RejectReason::InvalidServiceId;
    teller.manage(kB, kA, rej);
    EXPECT_EQ(teller.told(),
              "FAILED the connection that 10.0.0.1 asked of 10.0.0.2 port 7471 (rdma_cm) was "
              "refused by 10.0.0.2: REJ, reason 8 (invalid service id: nobody listens) | \n");
}

TEST(CaptureStory, ARefusalHasItsOwnTimeWithoutWhatItRefuses) {
    Teller teller;
    teller.request(Opcode::RcSendOnly, 5);
    teller.answer(5);
    wire::CmRej rej;
    rej.remote_id = {0x500};
    teller.manage(kB, kA, rej);
    const std::vector<CaptureFinding> told = teller.story.finish();
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].time, 2ms);
}

TEST(CaptureStory, RequestsForAConnectionThatNobodyAnswers) {
    Teller teller;
    for (int i = 0; i < 3; ++i) teller.manage(kA, kB, request_for_port(4420));
    expect(teller.told(), {"FAILED the connection that 10.0.0.1 asked of 10.0.0.2 port 4420 (NVMe, "
                           "rdma_cm) got no answer: REQ was sent 3 times"});
}

TEST(CaptureStory, TheConnectionManagerTellsTheNumbers) {
    Teller teller;
    teller.manage(kA, kB, request_for_port(7471));
    wire::CmRep rep;
    rep.local_id = {0x600};
    rep.remote_id = {0x500};
    rep.local_qpn = {kQpB};
    rep.starting_psn = Psn(9);
    rep.rnr_retry_count = 1;
    teller.manage(kB, kA, rep);
    for (int i = 0; i < 2; ++i) {
        teller.request(Opcode::RcSendOnly, 9);
        teller.answer(9, Syndrome::rnr(12));
    }
    teller.send(kB, kA, kQpA, Opcode::RcSendOnly, 701);
    teller.send(kA, kB, kQpB, Opcode::RcAck, 701);
    const std::string told = teller.told();
    // It is known without waiting that one retry was all.
    expect(told, {"FAILED a work request of QP 0x000011 failed at PSN 9 (IBV_WC_RNR_RETRY_EXC_ERR)",
                  "note QP 0x000022 begins with PSN 701, but the connection manager was told 700"});
    EXPECT_EQ(teller.story.counts().connections, 1U);
}

TEST(CaptureStory, AQueuePairConnectedToItself) {
    Teller teller;
    teller.send(kA, kA, 7, Opcode::RcSendOnly, 1);
    wire::Extensions ack;
    ack.aeth.syndrome = Syndrome::ack(wire::kNoCredits);
    teller.send(kA, kA, 7, Opcode::RcAck, 1, ack);
    EXPECT_EQ(teller.told(), "");
    EXPECT_EQ(teller.story.counts().connections, 1U);
    EXPECT_EQ(teller.story.counts().half, 0U);
}

TEST(CaptureStory, TwoThatFitAreNone) {
    Teller teller;
    teller.send(kA, kB, 20, Opcode::RcSendOnly, 5);
    teller.send(kA, kB, 21, Opcode::RcSendOnly, 5);
    teller.answer(5, Syndrome::nak(NakCode::RemoteAccess));
    // Which of them was refused cannot be known, and nobody is blamed.
    EXPECT_EQ(teller.told(), "");
    EXPECT_EQ(teller.story.counts().half, 3U);
}

TEST(CaptureStory, UcLosesSilently) {
    Teller teller;
    teller.request(Opcode::UcSendOnly, 1);
    teller.request(Opcode::UcSendOnly, 4);
    expect(teller.told(), {"note 2 packets of the queue pair to QP 0x000022 at 10.0.0.2 are "
                           "missing by their PSNs"});
}

TEST(CaptureStory, CutPacketsAreReadAsFarAsTheyGo) {
    Teller teller;
    teller.cut_to = 28;
    teller.request(Opcode::RcWriteOnly, 1, memory(0x1000, 5, 512), 512);
    teller.cut_to = 0;
    teller.answer(1, Syndrome::nak(NakCode::RemoteAccess));
    expect(teller.told(), {"an RDMA WRITE of 512 bytes at 0x1000 with key 0x00000005"});
    EXPECT_EQ(teller.story.counts().cut, 1U);
}

TEST(CaptureStory, TakesJoinedPacketsApart) {
    std::vector<std::byte> run;
    for (const std::uint32_t psn : {1, 2, 3}) {
        std::vector<std::byte> packet(wire::packet_size(Opcode::RcSendOnly, 40));
        wire::Bth bth{};
        bth.psn = Psn(psn);
        bth.destination = Qpn{kQpB};
        wire::emit_headers(packet, bth, {});
        run.insert(run.end(), packet.begin(), packet.end());
    }
    wire::RoceDatagram datagram;
    datagram.address = {kA, kB, 50'000};
    wire::seal_run(datagram.address, run, wire::packet_size(Opcode::RcSendOnly, 40));
    datagram.udp_payload = run;
    CaptureStory story;
    story.on_datagram(1s, datagram, run.size());
    EXPECT_TRUE(story.finish().empty());
    EXPECT_EQ(story.counts().packets, 3U);
    EXPECT_EQ(story.counts().joined, 1U);
}

TEST(CaptureStory, IsBoundedAndSaysSo) {
    Teller teller(4);
    for (std::uint32_t qpn = 0; qpn < 10; ++qpn)
        for (int i = 0; i < 2; ++i) teller.send(kA, kB, 100 + qpn, Opcode::RcSendOnly, 1);
    EXPECT_NE(teller.told(), "");
    EXPECT_EQ(teller.story.counts().forgotten, 6U);
    Teller many;
    for (std::uint32_t qpn = 0; qpn < 2 * CaptureStory::kFindingsMax; ++qpn)
        for (int i = 0; i < 2; ++i) many.send(kA, kB, 100 + qpn, Opcode::RcSendOnly, 1);
    EXPECT_EQ(many.story.finish().size(), CaptureStory::kFindingsMax);
    EXPECT_EQ(many.story.counts().findings_left_out, CaptureStory::kFindingsMax);
}

}  // namespace
}  // namespace feroce::cli::story_test
