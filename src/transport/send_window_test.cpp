// The window against a simulated bottleneck: go-back-N senders that ask for acknowledgements as the
// reliable requester does (four times a window), a drop-tail queue, random loss, sleeping
// receivers.
#include "transport/send_window.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <queue>
#include <vector>

#include "base/random.hpp"

namespace feroce::transport {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kPacketBytes = 1024;

struct Network {
    double bytes_per_second = 125e6;
    std::size_t queue_packets = 64;
    Duration propagation = 100us;  // There and back.
    double loss = 0;               // Of data packets, at random.
    Duration ack_timeout = 67ms;   // Local ACK timeout 14, what most programs ask for.
    double sleep_chance = 0;       // That an arrival finds the receiver asleep...
    Duration sleep_max = 4ms;      // ...for up to this long.
    std::uint64_t seed = 1;
};

struct Flow {
    SendWindow window;
    std::uint64_t next = 0;   // Packet to send next.
    std::uint64_t acked = 0;  // All before it are.
    std::uint64_t sent_end = 0;
    std::uint32_t since_ack_request = 0;
    bool is_sampling = false;
    std::uint64_t sample_packet = 0;
    Instant sample_sent{};
    std::uint64_t timer_epoch = 0;  // Timers of older epochs are dead.
    Instant wake_at = kNever;
    // Receiver.
    std::uint64_t expected = 0;
    bool has_nakked = false;
};

class Simulation {
public:
    Simulation(const Network& network, std::size_t flows, Duration stagger = 0us)
        : network_(network), random_(network.seed), flows_(flows) {
        for (std::size_t i = 0; i < flows; ++i)
            schedule(Instant(stagger * static_cast<int>(i)), {Kind::Wake, i, 0, false});
    }

    void run_until(Instant end) {
        while (!events_.empty() && events_.top().at <= end) {
            const Event event = events_.top();
            events_.pop();
            now_ = event.at;
            handle(event);
        }
        now_ = end;
    }

    Flow& flow(std::size_t i) { return flows_[i]; }
    std::vector<std::uint64_t> progress() const {
        std::vector<std::uint64_t> packets;
        for (const Flow& f : flows_) packets.push_back(f.acked);
        return packets;
    }

private:
    enum class Kind { Wake, Arrive, Ack, Nak, Timeout };
    struct What {
        Kind kind;
        std::size_t flow;
        std::uint64_t packet;
        bool ack_request;
    };
    struct Event {
        Instant at;
        std::uint64_t order;
        What what;
        bool operator<(const Event& other) const {
            return at != other.at ? at > other.at : order > other.order;
        }
    };

    void schedule(Instant at, const What& what) { events_.push({at, order_++, what}); }

    void handle(const Event& event) {
        const What& what = event.what;
        Flow& f = flows_[what.flow];
        switch (what.kind) {
            case Kind::Wake:
                if (f.wake_at != kNever && now_ < f.wake_at) return;
                f.wake_at = kNever;
                break;
            case Kind::Arrive:
                return arrive(what);
            case Kind::Ack:
                acknowledge(what.flow, what.packet);
                break;
            case Kind::Nak:
                acknowledge(what.flow, what.packet);
                lose(what.flow);
                break;
            case Kind::Timeout:
                if (what.packet != f.timer_epoch) return;
                lose(what.flow);
                break;
        }
        pump(what.flow);
    }

    void acknowledge(std::size_t index, std::uint64_t end) {
        Flow& f = flows_[index];
        if (end <= f.acked) return;
        const std::uint64_t bytes = (end - f.acked) * kPacketBytes;
        f.window.on_acked(
            now_, static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, f.window.in_flight())));
        f.acked = end;
        f.next = std::max(f.next, end);
        if (f.is_sampling && f.sample_packet < end) {
            f.is_sampling = false;
            f.window.on_rtt(now_, now_ - f.sample_sent);
        }
        arm(index);
    }

    void lose(std::size_t index) {
        Flow& f = flows_[index];
        f.window.on_loss(now_);
        f.window.on_forgotten(f.window.in_flight());
        f.next = f.acked;
        f.is_sampling = false;
        f.since_ack_request = 0;
        arm(index);
    }

    void arm(std::size_t index) {
        schedule(now_ + network_.ack_timeout,
                 {Kind::Timeout, index, ++flows_[index].timer_epoch, false});
    }

    void pump(std::size_t index) {
        Flow& f = flows_[index];
        while (f.window.may_send(now_)) send(index);
        const Instant again = f.window.blocked_until(now_);
        if (again == kNever || (f.wake_at != kNever && f.wake_at <= again)) return;
        f.wake_at = again;
        schedule(again, {Kind::Wake, index, 0, false});
    }

    void send(std::size_t index) {
        Flow& f = flows_[index];
        f.since_ack_request += kPacketBytes;
        const bool asks =
            f.since_ack_request >= f.window.size() / 4 || f.window.available() <= kPacketBytes;
        if (asks) f.since_ack_request = 0;
        if (asks && !f.is_sampling && f.next >= f.sent_end) {
            f.is_sampling = true;
            f.sample_packet = f.next;
            f.sample_sent = now_;
        }
        if (f.window.in_flight() == 0) arm(index);
        f.window.on_sent(now_, kPacketBytes);
        transmit({Kind::Arrive, index, f.next++, asks});
        f.sent_end = std::max(f.sent_end, f.next);
    }

    void transmit(const What& packet) {
        while (!departures_.empty() && departures_.front() <= now_) departures_.pop_front();
        if (departures_.size() >= network_.queue_packets) return;
        const auto wire_ns = static_cast<Duration::rep>(
            (kPacketBytes + 82) / network_.bytes_per_second * 1e9);  // Ethernet to ICRC.
        const Instant from = departures_.empty() ? now_ : departures_.back();
        departures_.push_back(from + Duration(wire_ns));
        if (network_.loss > 0 && random_.chance(network_.loss)) return;
        Instant at = departures_.back() + network_.propagation / 2;
        if (network_.sleep_chance > 0 && random_.chance(network_.sleep_chance)) {
            const auto nap = random_.below(static_cast<std::uint64_t>(network_.sleep_max.count()));
            awake_ = std::max(awake_, at + Duration(static_cast<Duration::rep>(nap)));
        }
        schedule(std::max(at, awake_), packet);  // A sleeper takes what piled up in order.
    }

    void arrive(const What& packet) {
        Flow& f = flows_[packet.flow];
        const Instant back = now_ + network_.propagation / 2;
        if (packet.packet == f.expected) {
            ++f.expected;
            f.has_nakked = false;
            if (packet.ack_request) schedule(back, {Kind::Ack, packet.flow, f.expected, false});
        } else if (packet.packet > f.expected) {
            if (f.has_nakked) return;  // IBTA: one NAK until the expected packet arrives.
            f.has_nakked = true;
            schedule(back, {Kind::Nak, packet.flow, f.expected, false});
        } else if (packet.ack_request) {
            schedule(back, {Kind::Ack, packet.flow, f.expected, false});
        }
    }

    Network network_;
    Prng random_;
    std::vector<Flow> flows_;
    std::priority_queue<Event> events_;
    std::uint64_t order_ = 0;
    Instant now_{};
    std::deque<Instant> departures_;
    Instant awake_{};
};

struct Shares {
    double utilisation = 0;  // Goodput over what the line carries in payload.
    double fairness = 0;     // Jain's index.
};

Shares measure(Simulation& simulation, const Network& network, Instant from, Instant to) {
    simulation.run_until(from);
    const std::vector<std::uint64_t> before = simulation.progress();
    simulation.run_until(to);
    const std::vector<std::uint64_t> after = simulation.progress();
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
        const double share = static_cast<double>(after[i] - before[i]);
        sum += share;
        squares += share * share;
    }
    const double seconds = std::chrono::duration<double>(to - from).count();
    return {sum * (kPacketBytes + 82) / seconds / network.bytes_per_second,
            sum * sum / (squares * static_cast<double>(after.size()))};
}

Shares run_incast(std::size_t flows, Duration propagation, Duration stagger, Duration timeout) {
    const Network network{.propagation = propagation, .ack_timeout = timeout};
    Simulation simulation(network, flows, stagger);
    return measure(simulation, network, Instant(1s), Instant(4s));
}

TEST(SendWindow, EightFlowsShareASmallQueue) {
    for (const Duration propagation : {20us, 100us, 500us}) {
        for (const Duration stagger : {0ms, 50ms}) {
            for (const Duration timeout : {4ms, 67ms}) {
                const Shares shares = run_incast(8, propagation, stagger, timeout);
                EXPECT_GE(shares.utilisation, 0.95)
                    << propagation.count() << " " << stagger.count();
                EXPECT_GE(shares.fairness, 0.9) << propagation.count() << " " << stagger.count();
            }
        }
    }
}

TEST(SendWindow, EightFlowsAreAtWorkFromTheFirstSecond) {
    const Network network;
    Simulation simulation(network, 8);
    const Shares shares = measure(simulation, network, Instant(0s), Instant(1s));
    EXPECT_GE(shares.utilisation, 0.8);
}

TEST(SendWindow, OneFlowFillsTheLine) {
    for (const Duration propagation : {20us, 100us, 500us})
        EXPECT_GE(run_incast(1, propagation, 0us, 67ms).utilisation, 0.95);
}

// Less than one smallest window each: the pace must go below it.
TEST(SendWindow, MoreFlowsThanTheQueueHasRoomForStillMove) {
    const Shares shares = run_incast(16, 100us, 0us, 67ms);
    EXPECT_GE(shares.utilisation, 0.7);
    EXPECT_GE(shares.fairness, 0.8);
}

TEST(SendWindow, SameSeedSameRun) {
    const Network network{.loss = 0.01, .seed = 9};
    Simulation first(network, 8), second(network, 8);
    for (Simulation* each : {&first, &second}) each->run_until(Instant(200ms));
    EXPECT_EQ(first.progress(), second.progress());
    EXPECT_GT(first.progress()[0], 0U);
}

constexpr Network kLoopback{.bytes_per_second = 5e9, .queue_packets = 100'000, .propagation = 50us};

TEST(SendWindow, DoublesOnAFastPathUntilTheLimit) {
    SendWindow::Limits limits;
    Simulation simulation(kLoopback, 1);
    EXPECT_EQ(simulation.flow(0).window.size(), limits.initial_bytes);
    // Five doublings; by the last one the line is full and a round takes 400 us.
    simulation.run_until(Instant(2ms));
    EXPECT_EQ(simulation.flow(0).window.size(), limits.bytes_max);
}

TEST(SendWindow, SleepingReceiverIsNotCongestion) {
    Network network = kLoopback;
    network.sleep_chance = 0.0005;
    Simulation simulation(network, 1);
    simulation.run_until(Instant(20ms));
    EXPECT_EQ(simulation.flow(0).window.size(), SendWindow::Limits{}.bytes_max);
    simulation.run_until(Instant(1s));
    EXPECT_EQ(simulation.flow(0).window.size(), SendWindow::Limits{}.bytes_max);
}

// A gigabit a second and 20 ms are 2.5 MB: more than a window may be where a path is short.
TEST(SendWindow, FillsALongPath) {
    Network network;
    network.propagation = 20ms;
    network.queue_packets = 100'000;
    Simulation simulation(network, 1);
    simulation.run_until(Instant(3s));
    EXPECT_GT(simulation.flow(0).window.size(), 2'500'000U);
    const std::uint64_t before = simulation.flow(0).acked;
    simulation.run_until(Instant(4s));
    const auto bytes = static_cast<double>((simulation.flow(0).acked - before) * kPacketBytes);
    EXPECT_GT(bytes, 0.9 * network.bytes_per_second);
}

// What go-back-N can do at a loss rate p is about one window in each 1/p packets: a good window is
// some fraction of 1/p packets, and must neither fall to the minimum nor stay far above 1/p.
TEST(SendWindow, RandomLossDoesNotCollapseIt) {
    for (const double loss : {0.001, 0.01, 0.05}) {
        Network network = kLoopback;
        network.loss = loss;
        Simulation simulation(network, 1);
        double sum = 0;
        int samples = 0;
        for (Instant at(100ms); at <= Instant(2s); at += 10ms, ++samples) {
            simulation.run_until(at);
            sum += simulation.flow(0).window.size();
        }
        const double packets = sum / samples / kPacketBytes;
        EXPECT_GE(packets, 0.07 / loss) << loss;
        EXPECT_GE(packets, 8) << loss;
        EXPECT_LE(packets, 4 / loss) << loss;
    }
}

class Driven : public testing::Test {
protected:
    // One window's worth sent and acknowledged in one round trip.
    void round(Duration rtt) {
        const std::uint32_t bytes = window.available();
        window.on_sent(now, bytes);
        now += rtt;
        window.on_acked(now, bytes);
        window.on_rtt(now, rtt);
    }
    SendWindow window;
    Instant now{1s};
};

TEST_F(Driven, CountsBytes) {
    EXPECT_EQ(window.available(), 65536U);
    window.on_sent(now, 65535);
    EXPECT_TRUE(window.may_send(now));
    EXPECT_EQ(window.blocked_until(now), now);
    window.on_sent(now, 4096);  // The last packet may stick out.
    EXPECT_FALSE(window.may_send(now));
    EXPECT_EQ(window.available(), 0U);
    EXPECT_EQ(window.blocked_until(now), kNever);
    window.on_forgotten(65535);
    EXPECT_EQ(window.in_flight(), 4096U);
    EXPECT_EQ(window.size(), 65536U);
}

// What the peer has read and not acknowledged, as its memory takes a while.
TEST_F(Driven, ByARingMessagesRunAheadOfAcknowledgements) {
    const SendWindow::Limits limits;
    EXPECT_FALSE(window.may_run_ahead()) << "not on a network";
    window.set_by_ring(true);
    window.on_sent(now, limits.ring_bytes);
    EXPECT_FALSE(window.may_send(now));
    EXPECT_TRUE(window.may_run_ahead(limits.ring_bytes - 1));
    EXPECT_FALSE(window.may_run_ahead(limits.ring_bytes)) << "the ring would be full";
    window.on_sent(now, limits.bytes_max - limits.ring_bytes);
    EXPECT_FALSE(window.may_run_ahead(0)) << "not without end";
}

TEST_F(Driven, WhatAsksIsNotHeldUpByThoseThatRunAhead) {
    const SendWindow::Limits limits;
    window.set_by_ring(true);
    window.on_sent(now, limits.ring_bytes);
    EXPECT_FALSE(window.may_ask(now));
    EXPECT_FALSE(window.may_run_ahead(0)) << "else the window would not open for long";
    window.on_acked(now, 1);
    EXPECT_TRUE(window.may_ask(now));
    window.on_sent(now, 1);
    EXPECT_TRUE(window.may_run_ahead(0));
}

TEST_F(Driven, UnusedWindowDoesNotGrow) {
    for (int i = 0; i < 10; ++i) {
        window.on_sent(now, 1024);
        now += 100us;
        window.on_acked(now, 1024);
        window.on_rtt(now, 100us);
    }
    EXPECT_EQ(window.size(), 65536U);
}

TEST_F(Driven, OneDecreaseARoundTrip) {
    round(100us);
    const std::uint32_t before = window.size();
    window.on_loss(now);
    const std::uint32_t after = window.size();
    EXPECT_LT(after, before);
    window.on_loss(now + 99us);
    window.on_congestion_mark(now + 99us);
    EXPECT_EQ(window.size(), after);
    window.on_loss(now + 100us);
    EXPECT_LT(window.size(), after);
}

TEST_F(Driven, LossWithLongRoundTripsCutsDeeper) {
    round(100us);
    SendWindow other = window;
    const double before = window.size();
    window.on_loss(now);
    for (int i = 0; i < 2; ++i) other.on_rtt(now, 700us);
    other.on_loss(now);
    EXPECT_GE(window.size(), before * 0.8);
    EXPECT_LE(other.size(), before * 0.65);
}

TEST_F(Driven, MarksShrinkItDownToTheMinimumAndNoFurther) {
    for (int i = 0; i < 100; ++i) {
        round(100us);
        window.on_congestion_mark(now);
        now += 200us;
    }
    EXPECT_LT(window.size(), 16384U);
    EXPECT_GE(window.size(), 4096U);
}

TEST_F(Driven, LongRoundTripsAloneTakeNothingBelowTheStart) {
    round(100us);
    for (int i = 0; i < 200; ++i) round(30ms);
    EXPECT_EQ(window.size(), 65536U);
    EXPECT_TRUE(window.may_send(now + 1s));
}

// A loss says how much queueing this path takes, and the path may change.
TEST_F(Driven, WhatALossTaughtIsForgottenInTime) {
    round(100us);
    for (int i = 0; i < 2; ++i) window.on_rtt(now, 700us);
    window.on_loss(now);
    const std::uint32_t start = window.size();
    for (int i = 0; i < 100; ++i) round(3ms);
    const std::uint32_t small = window.size();
    EXPECT_LT(small, start / 2);
    for (int i = 0; i < 2000; ++i) {
        round(3ms);
        if (i % 100 == 0) round(100us);  // The path is as short as ever.
    }
    EXPECT_GT(window.size(), 2 * small);
}

TEST_F(Driven, GrowsAsLongAsThePathTakesMoreUpToAnEnd) {
    for (int i = 0; i < 30; ++i) round(20ms);
    EXPECT_EQ(window.size(), SendWindow::Limits{}.long_path_bytes_max);
}

// Else its bursts would overflow a queue that is shorter than the window.
TEST_F(Driven, PacesFromTheStartOnALongPath) {
    for (int i = 0; i < 4; ++i) round(20ms);
    const std::uint32_t whole = window.size() / 1024;
    std::uint32_t burst = 0;
    for (; window.may_send(now); ++burst) window.on_sent(now, 1024);
    EXPECT_LE(burst, whole / 20);
    Instant last = now;
    for (std::uint32_t sent = burst; sent < whole; ++sent) {
        last = window.blocked_until(last);
        ASSERT_NE(last, kNever);
        window.on_sent(last, 1024);
    }
    EXPECT_LE(last - now, 10ms) << "twice as fast as the window says: it is to double";
}

TEST_F(Driven, PacesAfterADecreaseAndNotBefore) {
    round(800us);
    for (int i = 0; i < 40; ++i) {
        ASSERT_TRUE(window.may_send(now));  // The start phase is never paced.
        window.on_sent(now, 1024);
    }
    window.on_forgotten(window.in_flight());
    window.on_loss(now);
    int burst = 0;
    for (; window.may_send(now); ++burst) window.on_sent(now, 1024);
    const int whole = static_cast<int>(window.size() / 1024);
    EXPECT_LE(burst, whole / 4);
    EXPECT_GE(burst, 1);
    // The rest goes out evenly within one round trip.
    Instant last = now;
    int sent = burst;
    for (; sent < whole; ++sent) {
        last = window.blocked_until(last);
        ASSERT_NE(last, kNever);
        ASSERT_TRUE(window.may_send(last));
        window.on_sent(last, 1024);
    }
    EXPECT_GT(last - now, 500us);
    EXPECT_LE(last - now, 800us);
}

}  // namespace
}  // namespace feroce::transport
