#include "transport/send_window.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/assert.hpp"

namespace feroce::transport {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Two time slices of a busy machine; less would take sleeping processes for full queues.
constexpr Duration kTargetDelayMax = milliseconds(10);
constexpr Duration kTargetDelayMin = microseconds(30);
// After this long without a loss the learned target is doubled: the network may have changed.
constexpr Duration kTargetMemory = seconds(1);
constexpr Duration kBasePeriod = seconds(5);
// Below this, what looks like queueing is the jitter of timers and schedulers.
constexpr Duration kJitter = microseconds(40);
// The same where a loss costs one packet. There a queue that is shorter may overflow, but a window
// that is smaller would leave the hosts at both ends idle.
constexpr Duration kHostDelay = microseconds(200);
// A decrease is recent for so many round trips.
constexpr int kPacingRounds = 64;
// Rounds without a decrease after which growth gets faster by one packet a round.
constexpr std::uint32_t kRoundsPerStep = 8;

constexpr double kCutAtCongestion = 0.6;
constexpr double kCutAtRandomLoss = 0.875;
constexpr double kCutAtMark = 0.75;
constexpr double kCutAtDelayMin = 0.8;
constexpr double kDelayGain = 0.8;

// Of the pipe, at a loss that a queue explains.
constexpr double kPipeKept = 0.9;
constexpr double kPipeKeptFar = 0.93;  // It takes long to have the rest back.
constexpr double kPipeRoom = 1.25;
constexpr double kPipeRoomAtLosses = 1.1;
constexpr double kPipeKeptByDrain = 0.9;
constexpr double kLossRateMax = 0.03;
constexpr double kLossRateOfQueues = 0.1;
constexpr std::uint32_t kFloodPackets = 16;
constexpr double kFloodRate = 0.1;
constexpr std::uint32_t kRoundsPerDrain = 100;
constexpr double kPaceGain = 1.2;
// On a long path, where what is sent faster than the line takes it fills a queue before the window
// stops it.
constexpr double kPaceGainFar = 1.05;
// Near what overflowed the last time a window grows slowly: what it grows in a round is lost if the
// queue is shorter.
constexpr double kGrowthMax = 1.0 / 8;
constexpr double kGrowthWhenFull = 1.0 / 256;
constexpr double kFullRoom = 1.05;
constexpr double kPaceGainAtFirst = 2;
// What is nearer is not paced at first: its queues are as long as its bursts, or are hosts.
constexpr Duration kFar = milliseconds(5);
constexpr double kPipesMax = 2;
constexpr std::uint32_t kRatePeriod = 10;
constexpr std::uint32_t kLevelRounds = 3;

// A window below bytes_min means a slower pace, down to this.
constexpr double kPaceBytesMin = 256;

double count(Duration d) {
    return static_cast<double>(d.count());
}

}  // namespace

SendWindow::SendWindow(const Limits& limits)
    : limits_(limits),
      window_bytes_(limits.initial_bytes),
      bytes_max_(limits.bytes_max),
      target_delay_(kTargetDelayMax) {
    ASSERT(limits.bytes_min > 0 && limits.bytes_min <= limits.initial_bytes &&
           limits.initial_bytes <= limits.bytes_max);
}

bool SendWindow::may_send(Instant now) const {
    return in_flight_ < size() && (!is_pacing(now) || next_send_ <= now + burst());
}

bool SendWindow::closes_with(Instant now, std::uint32_t bytes) const {
    return available() <= bytes || (is_pacing(now) && paced_until(now, bytes) > now + burst());
}

Instant SendWindow::paced_until(Instant now, std::uint32_t bytes) const {
    const double gain = !is_far()        ? (repairs_ ? kPaceGain : 1)
                        : in_slow_start_ ? kPaceGainAtFirst
                                         : kPaceGainFar;
    const double rate = window_bytes_ * gain;
    const auto spacing = static_cast<Duration::rep>(count(smoothed_rtt_) * bytes / rate);
    return std::max(next_send_, now) + Duration(spacing);
}

Instant SendWindow::blocked_until(Instant now) const {
    if (in_flight_ >= size()) return kNever;
    return may_send(now) ? now : next_send_ - burst();
}

std::uint32_t SendWindow::size() const {
    if (by_ring_) return limits_.ring_bytes;
    const double drained = std::max(window_bytes_ / 2, kPipeKeptByDrain * pipe_bytes());
    const double bytes = drains_ ? std::min(window_bytes_, drained) : window_bytes_;
    return std::max(static_cast<std::uint32_t>(bytes), limits_.bytes_min);
}

std::uint32_t SendWindow::available() const {
    return in_flight_ < size() ? size() - in_flight_ : 0;
}

bool SendWindow::may_ask(Instant now) {
    const bool may = may_send(now);
    if (!may) asked_in_vain_ = true;
    return may;
}

void SendWindow::take_off(std::uint32_t bytes) {
    ASSERT(bytes <= in_flight_);
    in_flight_ -= bytes;
    if (in_flight_ < size()) asked_in_vain_ = false;
}

bool SendWindow::is_far() const {
    return base_rtt_ >= kFar;
}

// In the start phase only on a long path: there the window must find out what the path can take.
bool SendWindow::is_pacing(Instant now) const {
    if (by_ring_) return false;
    if (is_far()) return true;
    if (!has_decreased_) return false;
    if (repairs_) return true;
    return window_bytes_ < limits_.bytes_min ||
           now - last_decrease_ < smoothed_rtt_ * kPacingRounds;
}

// Small windows put up with more queueing than large ones: that is what makes flows that share a
// bottleneck converge (as in Swift), however long each has been there. Nine packets get what was
// learned.
Duration SendWindow::target_delay() const {
    if (target_delay_ == kTargetDelayMax) return target_delay_;
    const double packets = std::max(window_bytes_ / packet_bytes_, 1.0);
    const double scale = std::clamp(3.0 / std::sqrt(packets), 0.5, 1.7);
    const Duration target(static_cast<Duration::rep>(count(target_delay_) * scale));
    return repairs_ ? std::max(target, burst()) : target;  // Its own bursts are no queue.
}

// Not less than what a timer of the kernel may be late by.
Duration SendWindow::burst() const {
    const Duration most = repairs_ || is_far() ? Duration(microseconds(200)) : smoothed_rtt_;
    return std::max(std::min(smoothed_rtt_ / 8, most), Duration(microseconds(50)));
}

Duration SendWindow::queueing_delay(Duration rtt) const {
    return std::max(rtt - base_rtt_, Duration(0));
}

void SendWindow::on_sent(Instant now, std::uint32_t bytes) {
    in_flight_ += bytes;
    // A READ counts all of its responses at once: no packet is larger than the smallest window.
    packet_bytes_ =
        std::max(std::min(bytes, limits_.bytes_min), packet_bytes_ - packet_bytes_ / 16);
    if (is_pacing(now)) next_send_ = paced_until(now, bytes);
}

void SendWindow::on_acked(Instant now, std::uint32_t bytes) {
    // A window that is not used proves nothing and does not grow.
    const bool is_limited = in_flight_ >= window_bytes_ / 2;
    take_off(bytes);
    if (by_ring_) return;
    round_bytes_ += bytes;
    if (now - round_start_ >= smoothed_rtt_) end_round(now);
    if (!is_limited || queueing_delay(recent_rtt_) > target_delay()) return;
    const auto packets_a_round = 1 + rounds_since_decrease_ / kRoundsPerStep;  // Whole ones only.
    const double additive_step = packet_bytes_ * packets_a_round;
    const double round_bytes = std::max<double>(window_bytes_, packet_bytes_);
    const double step = repairs_ ? std::max(additive_step, growth_step()) : additive_step;
    const double growth = in_slow_start_ ? bytes : step * bytes / round_bytes;
    window_bytes_ = std::max(window_bytes_, std::min(window_bytes_ + growth, bytes_max_));
}

void SendWindow::on_forgotten(std::uint32_t bytes) {
    take_off(bytes);
}

void SendWindow::on_rtt(Instant now, Duration sample) {
    sample = std::max(sample, Duration(1));
    const bool is_first = smoothed_rtt_ == Duration(0);
    smoothed_rtt_ = is_first ? sample : smoothed_rtt_ + (sample - smoothed_rtt_) / 8;
    recent_rtt_ = is_first ? sample : std::min(last_rtt_, sample);
    last_rtt_ = sample;
    if (round_rtt_min_ == Duration(0) || sample < round_rtt_min_) round_rtt_min_ = sample;
    note_base(now, sample);
    queueing_max_ = std::max(queueing_max_, queueing_delay(recent_rtt_));
}

void SendWindow::note_base(Instant now, Duration sample) {
    if (base_rtt_ == Duration(0)) {
        base_rtt_now_ = base_rtt_before_ = sample;
        base_period_start_ = now;
    } else if (now - base_period_start_ >= kBasePeriod) {
        base_rtt_before_ = std::exchange(base_rtt_now_, sample);
        queueing_max_before_ = std::exchange(queueing_max_, Duration(0));
        base_period_start_ = now;
    }
    base_rtt_now_ = std::min(base_rtt_now_, sample);
    base_rtt_ = std::min(base_rtt_now_, base_rtt_before_);
}

void SendWindow::end_round(Instant now) {
    const Duration shortest = std::exchange(round_rtt_min_, Duration(0));
    note_rate(now);
    round_start_ = now;
    ++rounds_since_decrease_;
    ++rounds_since_congestion_;
    const bool is_dry = shortest != Duration(0) && shortest <= base_rtt_ + base_rtt_ / 64;
    if (is_dry) rounds_since_drain_ = 0;
    drains_ = repairs_ && ++rounds_since_drain_ >= kRoundsPerDrain;
    if (drains_) rounds_since_drain_ = 0;
    if (target_delay_ < kTargetDelayMax && now - target_learned_ >= kTargetMemory) {
        target_delay_ = std::min(target_delay_ * 2, kTargetDelayMax);
        target_learned_ = now;
    }
    if (shortest == Duration(0) || queueing_delay(shortest) <= target_delay()) return;
    in_slow_start_ = false;
    const double excess =
        count(queueing_delay(shortest) - target_delay()) / count(queueing_delay(shortest));
    const double factor = std::max(kCutAtDelayMin, 1.0 - kDelayGain * excess);
    const bool has_learned = target_delay_ < kTargetDelayMax;
    rounds_since_congestion_ = 0;
    const double pipe = repairs_ ? pipe_bytes() : 0;
    decrease(now, factor,
             std::max<double>(has_learned ? kPaceBytesMin : limits_.initial_bytes, pipe));
}

// At most once a round trip: the answers to what was sent before say nothing about the new window.
void SendWindow::decrease(Instant now, double factor, double floor_bytes) {
    if (has_decreased_ && now - last_decrease_ < smoothed_rtt_) return;
    const double smaller = std::max(window_bytes_ * factor, floor_bytes);
    if (smaller >= window_bytes_) return;
    window_bytes_ = smaller;
    last_decrease_ = now;
    has_decreased_ = true;
    rounds_since_decrease_ = 0;
}

// Two thirds of the queueing at which packets were lost: short of the queue's end, but enough to
// keep the line busy while several senders take turns in backing off.
void SendWindow::learn_target(Instant now, Duration seen) {
    target_delay_ =
        std::clamp(seen * 2 / 3, repairs_ ? kHostDelay : kTargetDelayMin, kTargetDelayMax);
    target_learned_ = now;
}

void SendWindow::on_loss(Instant now) {
    if (by_ring_) return;
    in_slow_start_ = false;
    const Duration seen = queueing_delay(recent_rtt_);
    const bool is_congested = seen > std::max(kJitter, base_rtt_ / 2);
    if (is_congested) learn_target(now, seen);
    decrease(now, is_congested ? kCutAtCongestion : kCutAtRandomLoss,
             is_congested ? kPaceBytesMin : limits_.bytes_min);
}

// The path has given so much, so it can: a loss that no queue explains is none of congestion, and
// takes nothing of that. A queue shows by being about as long as it gets.
void SendWindow::on_repaired_loss(Instant now, std::uint32_t bytes) {
    if (by_ring_) return;
    repairs_ = true;
    round_lost_ += bytes;
    const Duration seen = queueing_delay(recent_rtt_);
    const Duration longest = std::max(queueing_max_, queueing_max_before_);
    const bool is_queueing =
        seen > std::max(kHostDelay, std::min(base_rtt_ / 2, std::max(longest / 2, burst())));
    if (is_queueing) learn_target(now, seen);
    if (is_queueing) full_bytes_ = pipe_bytes();
    // At first the rate may double in a round, and half of that is lost.
    const bool is_flood = is_far() && in_slow_start_ &&
                          round_lost_ > kFloodPackets * packet_bytes_ &&
                          static_cast<double>(round_lost_) > kFloodRate * window_bytes_;
    if (is_queueing || is_flood || loss_rate_ > kLossRateOfQueues) {
        in_slow_start_ = false;
        rounds_since_congestion_ = 0;
        const double kept = is_far() ? kPipeKeptFar : kPipeKept;
        return decrease(now, kCutAtCongestion, std::max(kPaceBytesMin, kept * pipe_bytes()));
    }
    if (in_slow_start_) return;
    const double room = loss_rate_ < kLossRateMax ? kPipeRoom : kPipeRoomAtLosses;
    decrease(now, kCutAtRandomLoss, std::max<double>(limits_.bytes_min, room * pipe_bytes()));
}

void SendWindow::note_rate(Instant now) {
    const Duration span = now - round_start_;
    const auto bytes = static_cast<double>(std::exchange(round_bytes_, 0));
    const auto lost = static_cast<double>(std::exchange(round_lost_, 0));
    if (bytes + lost > 0) loss_rate_ += (lost / (bytes + lost) - loss_rate_) / 8;
    if (round_start_ == Instant{} || span <= Duration(0)) return;
    const double rate = bytes / count(span);
    if (++rate_rounds_ > kRatePeriod) {
        rate_before_ = std::exchange(rate_now_, 0);
        rate_rounds_ = 0;
    }
    rate_now_ = std::max(rate_now_, rate);
    note_path();
    if (rate > level_rate_ * 1.25) {
        level_rate_ = rate;
        level_rounds_ = 0;
    } else if (++level_rounds_ >= kLevelRounds && repairs_ && in_slow_start_) {
        in_slow_start_ = false;  // More in flight brings no more.
        window_bytes_ =
            std::clamp(pipe_bytes(), static_cast<double>(limits_.bytes_min), window_bytes_);
    }
}

void SendWindow::note_path() {
    const double path = std::min<double>(kPipesMax * pipe_bytes(), limits_.long_path_bytes_max);
    bytes_max_ = std::max<double>(limits_.bytes_max, path);
}

// What is on its way when no queue is.
double SendWindow::pipe_bytes() const {
    return std::max(rate_now_, rate_before_) * count(base_rtt_);
}

// Where no packet waits there is room.
double SendWindow::growth_step() const {
    if (queueing_delay(recent_rtt_) >= target_delay() / 2) return 0;
    const bool is_full = window_bytes_ > kPipeKeptFar * 0.99 * full_bytes_ &&
                         window_bytes_ < kFullRoom * full_bytes_;
    const double most = is_far() && is_full ? kGrowthWhenFull : kGrowthMax;
    const double rounds = rounds_since_congestion_;
    const double steps = is_far() ? rounds * rounds : rounds * rounds / 4;
    return std::min(packet_bytes_ * steps, window_bytes_ * most);
}

void SendWindow::on_congestion_mark(Instant now) {
    if (by_ring_) return;
    in_slow_start_ = false;
    if (queueing_delay(recent_rtt_) > kJitter) learn_target(now, queueing_delay(recent_rtt_));
    decrease(now, kCutAtMark, limits_.bytes_min);
}

}  // namespace feroce::transport
