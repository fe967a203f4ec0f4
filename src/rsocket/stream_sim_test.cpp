// Two streams and the network between them, from a seed: messages and completions are late in any
// order that a reliable connection allows, either side may have either byte order, sizes and reads
// are random, and a network may break. Checked: the bytes that are read are those that were sent,
// no message comes without a credit, and nothing stands still while something can move.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/random.hpp"
#include "rsocket/test_wire.hpp"

namespace feroce::rsockets {
namespace stream_sim_test {

constexpr int kSeeds = 1000;

struct Side {
    Side(Prng& random, std::endian order, std::size_t most)
        : memory(ring_size(random)), total(random.below(most)) {
        memory.config.order = order;
        memory.config.send_queue = 16 + static_cast<std::uint32_t>(random.below(100));
        memory.config.receive_queue = 16 + static_cast<std::uint32_t>(random.below(100));
        memory.config.copied_limit = static_cast<std::uint32_t>(random.below(65));
        stream = std::make_unique<Stream>(memory.config);
    }

    static std::size_t ring_size(Prng& random) { return 8192 * (1 + random.below(8)); }

    static std::byte at(std::size_t position, unsigned salt) {
        return static_cast<std::byte>((position * 2654435761U + salt) >> 11);
    }

    StreamMemory memory;
    std::unique_ptr<Stream> stream;
    KeptSends flying;                  // Posted, not yet at the peer.
    std::deque<std::uint64_t> landed;  // At the peer, completion on its way.
    std::size_t total;                 // Bytes that this side will send.
    std::size_t sent = 0;
    std::size_t got = 0;
    bool ended = false;  // It has said so.
};

class World {
public:
    explicit World(std::uint64_t seed)
        : random_(seed),
          a_(random_, random_.chance(0.5) ? std::endian::big : std::endian::little,
             tiny_ ? 3'000 : 60'000),
          b_(random_, random_.chance(0.5) ? std::endian::big : std::endian::little,
             tiny_ ? 3'000 : 60'000) {
        // What is told is what comes over the wire.
        EXPECT_TRUE(a_.stream->meet(*Greeting::parse(b_.stream->greeting().emit())));
        EXPECT_TRUE(b_.stream->meet(*Greeting::parse(a_.stream->greeting().emit())));
        a_.stream->open(a_.flying);
        b_.stream->open(b_.flying);
    }

    // Ends when both sides have read all, or nothing moves any more.
    void run() {
        int idle = 0;
        while (idle < 10000 && !is_over()) {
            const bool a_first = random_.chance(0.5);
            const bool moved = a_first ? step(a_, b_, 1) : step(b_, a_, 2);
            idle = moved ? 0 : idle + 1;
        }
        EXPECT_EQ(a_.got, b_.total);
        EXPECT_EQ(b_.got, a_.total);
        EXPECT_EQ(a_.stream->error(), 0);
        EXPECT_EQ(b_.stream->error(), 0);
        EXPECT_FALSE(a_.stream->is_readable());
        EXPECT_FALSE(b_.stream->is_readable());
    }

    // The connection ends in the middle: neither side reads anything that was not sent.
    void run_and_break() {
        for (std::uint64_t steps = random_.below(400); steps != 0; --steps)
            random_.chance(0.5) ? step(a_, b_, 1) : step(b_, a_, 2);
        for (Side* side : {&a_, &b_}) side->stream->fail(ECONNRESET);
        slow_ = false;
        while (read(a_, 2)) continue;
        while (read(b_, 1)) continue;
        EXPECT_LE(a_.got, b_.sent);
        EXPECT_LE(b_.got, a_.sent);
    }

private:
    bool is_over() const {
        return !a_.stream->is_readable() && !b_.stream->is_readable() && a_.got == b_.total &&
               b_.got == a_.total;
    }

    bool step(Side& self, Side& other, unsigned salt) {
        switch (random_.below(5)) {
            case 0:
                return write(self, salt);
            case 1:
                return read(self, 3 - salt);
            case 2:
                return deliver(self, other);
            case 3:
                return complete(self);
            default:
                return end(self);
        }
    }

    bool write(Side& self, unsigned salt) {
        const std::size_t left = self.total - self.sent;
        const std::size_t size = std::min(left, std::size_t{1} << random_.below(tiny_ ? 6 : 17));
        if (size == 0) return false;
        std::vector<std::byte> bytes(size);
        for (std::size_t i = 0; i < size; ++i) bytes[i] = Side::at(self.sent + i, salt);
        const std::size_t count = send_all(*self.stream, bytes, self.flying);
        self.sent += count;
        return count != 0;
    }

    bool read(Side& self, unsigned salt) {
        if (slow_ && !random_.chance(0.05)) return false;
        std::vector<std::byte> to(std::size_t{1} << random_.below(17));
        const std::size_t count = self.stream->receive(to);
        for (std::size_t i = 0; i < count; ++i) {
            if (to[i] == Side::at(self.got + i, salt)) continue;
            ADD_FAILURE() << "byte " << self.got + i;
            break;
        }
        self.got += count;
        self.stream->flush(self.flying);
        return count != 0;
    }

    // The oldest work request reaches the peer's memory, and its immediate the peer.
    bool deliver(Side& self, Side& other) {
        if (self.flying.sends.empty()) return false;
        const Sent sent = std::move(self.flying.sends.front());
        self.flying.sends.pop_front();
        if (!sent.bytes.empty()) {
            const bool inside = is_inside(other.memory.receive_ring, sent) ||
                                is_inside(other.memory.config.targets, sent);
            EXPECT_TRUE(inside) << std::hex << sent.send.address;
            if (!inside) return false;
            std::memcpy(reinterpret_cast<void*>(sent.send.address), sent.bytes.data(),
                        sent.bytes.size());
        }
        self.landed.push_back(sent.send.tag);
        // A machine that counts more than it gave credits for fails with EPROTO.
        if (sent.send.has_immediate) other.stream->on_immediate(sent.send.immediate);
        other.stream->flush(other.flying);
        return true;
    }

    static bool is_inside(ByteView memory, const Sent& sent) {
        const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
        return sent.send.address >= first &&
               sent.send.address + sent.bytes.size() <= first + memory.size();
    }

    bool complete(Side& self) {
        if (self.landed.empty()) return false;
        self.stream->on_sent(self.landed.front());
        self.landed.pop_front();
        self.stream->flush(self.flying);
        return true;
    }

    bool end(Side& self) {
        if (self.ended || self.sent != self.total) return false;
        self.ended = true;
        self.stream->shut_writing(self.flying);
        return true;
    }

    Prng random_;
    const bool tiny_ = random_.chance(0.3);  // Many messages before a half of the ring is full.
    bool slow_ = random_.chance(0.3);        // The readers: a sender runs out of all it may.
    Side a_;
    Side b_;
};

TEST(RsocketStreamSim, EveryByteArrivesOnceAndInOrder) {
    for (int seed = 0; seed < kSeeds && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        World(static_cast<std::uint64_t>(seed)).run();
    }
}

TEST(RsocketStreamSim, ABrokenConnectionGivesAPrefix) {
    for (int seed = 0; seed < kSeeds && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        World(static_cast<std::uint64_t>(seed)).run_and_break();
    }
}

}  // namespace stream_sim_test
}  // namespace feroce::rsockets
