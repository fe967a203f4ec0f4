// For tests: two reliable queue pairs, each with far memory, and a wire between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "transport/far_fixture.hpp"
#include "transport/packet_builder.hpp"

namespace feroce::transport::far_test {

class FarMemoryUnderRc : public testing::Test {
protected:
    // Until neither end has anything to say.
    void exchange() {
        for (bool more = true; more;) {
            more = pass(a, b);
            more |= pass(b, a);
        }
        EXPECT_TRUE(a.release() && b.release());
    }
    static bool pass(FarEnd& from, FarEnd& to) {
        const std::vector<SentPacket> packets = from.pump();
        for (const SentPacket& packet : packets) to.receive(packet);
        EXPECT_EQ(from.qp.machine().check_invariants(), nullptr);
        EXPECT_EQ(to.qp.machine().check_invariants(), nullptr);
        return !packets.empty() || from.qp.machine().wants_to_send(Instant{});
    }
    void write_far(std::uint64_t wr_id, std::uint64_t offset, std::uint32_t length,
                   SendOp op = SendOp::Write) {
        a.send(request(op, wr_id, kBase + offset, b.far_keys.rkey), a.sge(offset, length));
    }
    static SendWr request(SendOp op, std::uint64_t wr_id, std::uint64_t address = 0,
                          RKey rkey = {}) {
        SendWr wr;
        wr.op = op;
        wr.wr_id = wr_id;
        wr.signaled = true;
        wr.remote_address = address;
        wr.rkey = rkey;
        return wr;
    }
    // A packet as only a peer that breaks rules sends it.
    void forge(wire::Opcode opcode, std::uint32_t psn, const wire::Reth& reth = {},
               std::size_t size = 0) {
        PacketSpec spec;
        spec.opcode = opcode;
        spec.destination = b.qp.qpn();
        spec.psn = Psn(psn);
        spec.extensions.reth = reth;
        spec.payload_size = size;
        const ByteSpan payload = append_packet(a.batch, a.qp.path(), spec);
        std::fill(payload.begin(), payload.end(), std::byte{0x5a});
        a.batch.flush();
        for (const SentPacket& packet : std::exchange(a.recorder.packets, {})) b.receive(packet);
    }
    static void expect_same(ByteView one, ByteView other) {
        EXPECT_TRUE(std::equal(one.begin(), one.end(), other.begin(), other.end()));
    }

    FarEnd a{QpType::Rc, Qpn{0x01'0011}};
    FarEnd b{QpType::Rc, Qpn{0x02'0022}};
};

}  // namespace feroce::transport::far_test
