// Messages of half the PSN space: 2 GiB at path MTU 256 are 2^23 packets, so the first and the last
// of one message are as far apart as two PSNs can be.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/machine_fixture.hpp"
#include "transport/rc/rc_machine.hpp"

namespace feroce::transport::rc {
namespace {

constexpr std::uint32_t kMtu = 256;
constexpr std::uint32_t kHalf = 1U << 23;
constexpr std::uint32_t kLongest = 1U << 31;
constexpr Psn kFirst{0xff'fff0};

// More addresses than memory: one small piece, mapped again and again.
class LongRange {
public:
    static constexpr std::size_t kPiece = 4 << 20;
    static constexpr std::size_t kBytes = std::size_t{kLongest} + kPiece;

    LongRange() {
        const int fd = memfd_create("long range", 0);
        EXPECT_EQ(ftruncate(fd, kPiece), 0);
        void* all =
            mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        EXPECT_NE(all, MAP_FAILED);
        start_ = static_cast<std::byte*>(all);
        for (std::size_t at = 0; at < kBytes; at += kPiece)
            EXPECT_NE(
                mmap(start_ + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
                MAP_FAILED);
        close(fd);
    }
    LongRange(const LongRange&) = delete;
    LongRange& operator=(const LongRange&) = delete;
    ~LongRange() { munmap(start_, kBytes); }

    std::byte* start() const { return start_; }
    std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(start_); }

private:
    std::byte* start_ = nullptr;
};

class HalfThePsns : public testing::Test {
protected:
    HalfThePsns() {
        keys = *end.memory.register_region({.pd = end.pd,
                                            .address = range.start(),
                                            .length = LongRange::kBytes,
                                            .iova = range.address(),
                                            .access = mem::AccessSet(15)});
        end.qp.set_window(&window);
        end.change_attributes([](QpAttributes& attributes) {
            attributes.path_mtu = kMtu;
            attributes.send_psn = attributes.receive_psn = kFirst;
            attributes.read_atomic_max = attributes.dest_read_atomic_max = 4;
            attributes.access = mem::AccessSet(15);
        });
        end.run();
    }
    // A packet of the peer. Its bytes live until the next one.
    const wire::Packet& packet(wire::Opcode opcode, Psn psn, const wire::Extensions& extensions,
                               std::size_t payload_size = 0) {
        bytes_.assign(wire::packet_size(opcode, payload_size), std::byte{0});
        wire::Bth bth;
        bth.opcode = opcode;
        bth.psn = psn;
        wire::emit_headers(bytes_, bth, extensions);
        EXPECT_EQ(wire::parse_packet(bytes_, packet_), wire::ParseError::None);
        return packet_;
    }
    void receive(const wire::Packet& packet) {
        end.qp.machine().on_packet(Instant{}, packet, Arrival{});
    }
    void asks_to_read(Psn psn, std::uint32_t length) {
        wire::Extensions extensions;
        extensions.reth = {range.address(), keys.rkey, length};
        receive(packet(wire::Opcode::RcReadRequest, psn, extensions));
    }
    // All responses to a READ request that was sent.
    void answer(const wire::Packet& request) {
        wire::Packet response =
            packet(wire::Opcode::RcReadResponseMiddle, request.bth.psn, {}, kMtu);
        for (std::uint32_t left = request.reth().length; left > 0; left -= kMtu) {
            receive(response);
            response.bth.psn = response.bth.psn + 1;
        }
    }
    Psn expected() { return end.qp.machine().progress().expected; }

    LongRange range;
    SendWindow window;
    End end{QpType::Rc, Qpn{0x01'0011}};
    mem::RegionKeys keys;

private:
    std::vector<std::byte> bytes_;
    wire::Packet packet_;
};

TEST_F(HalfThePsns, AReadOfThemCompletesAndLeavesNothingInFlight) {
    SendWr read;
    read.wr_id = 1;
    read.op = SendOp::Read;
    read.signaled = true;
    end.send(read, {range.address(), kLongest, keys.lkey});
    SendWr write = read;  // Its packets are on their way while the READ ends.
    write.wr_id = 2;
    write.op = SendOp::Write;
    end.send(write, {range.address(), 8, keys.lkey});
    Psn last = kFirst;
    while (end.sent.list.empty()) {
        const std::vector<SentPacket> sent = end.pump();
        ASSERT_FALSE(sent.empty());
        for (const SentPacket& one : sent) {
            const wire::Packet request = one.parsed();
            if (request.info->verb == wire::Verb::ReadRequest) answer(request);
            last = request.bth.psn;
        }
    }
    EXPECT_EQ(last, kFirst + kHalf);
    EXPECT_EQ(end.sent.list[0].status, WcStatus::Success);
    wire::Extensions ack;
    ack.aeth.syndrome = wire::Syndrome::ack(wire::kNoCredits);
    receive(packet(wire::Opcode::RcAck, last, ack));
    ASSERT_EQ(end.sent.list.size(), 2U);
    EXPECT_EQ(end.sent.list[1].status, WcStatus::Success);
    EXPECT_EQ(window.in_flight(), 0U);
    EXPECT_EQ(end.counters[Counter::CompleterRetry], 0U);
}

TEST_F(HalfThePsns, AReadOfThemIsTakenAndTakenAgain) {
    asks_to_read(kFirst, kLongest);
    EXPECT_EQ(expected(), kFirst + kHalf);
    asks_to_read(kFirst, kLongest);  // From as far back as there are duplicates.
    EXPECT_EQ(end.drops(DropReason::DuplicateReadBusy), 1U);
    asks_to_read(kFirst + kHalf, kMtu);
    EXPECT_EQ(expected(), kFirst + kHalf + 1);
}

TEST_F(HalfThePsns, ALongerReadOrWriteIsRefused) {
    for (const wire::Opcode opcode : {wire::Opcode::RcReadRequest, wire::Opcode::RcWriteFirst}) {
        for (const QpState to : {QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts})
            end.move(to);
        const bool is_write = opcode == wire::Opcode::RcWriteFirst;
        wire::Extensions extensions;
        extensions.reth = {range.address(), keys.rkey, kLongest + 1};
        receive(packet(opcode, kFirst, extensions, is_write ? kMtu : 0));
        EXPECT_EQ(end.qp.state(), QpState::Err);
        const std::vector<SentPacket> sent = end.pump();
        ASSERT_EQ(sent.size(), 1U);
        EXPECT_EQ(sent[0].parsed().aeth().syndrome,
                  wire::Syndrome::nak(wire::NakCode::InvalidRequest));
        EXPECT_EQ(end.counters[Counter::DuplicateRequest], 0U);
    }
}

// An atomic's answer is kept until younger ones replace it, which may be more than all PSNs later.
TEST_F(HalfThePsns, AnOldAtomicDoesNotAnswerForAYoungerPsn) {
    wire::Extensions atomic;
    atomic.atomic = {range.address(), keys.rkey, 1, 0};
    receive(packet(wire::Opcode::RcFetchAdd, kFirst, atomic));
    asks_to_read(kFirst + 1, kLongest);
    asks_to_read(kFirst + 1 + kHalf, kLongest);
    EXPECT_EQ(expected(), kFirst + 1);
    receive(packet(wire::Opcode::RcFetchAdd, kFirst, atomic));
    EXPECT_EQ(end.drops(DropReason::DuplicateUnknownAtomic), 1U);
}

}  // namespace
}  // namespace feroce::transport::rc
