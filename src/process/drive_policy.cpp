#include "process/drive_policy.hpp"

#include <algorithm>
#include <utility>

namespace feroce::process {

void DrivePolicy::poll_begins(Instant now) {
    if (std::exchange(posted_, false))
        polls_after_posts_ =
            now - posted_at_ < kPollGap ? std::min(polls_after_posts_ + 1, kPollsNeeded) : 0;
    if (!returned_completion_) return;
    // The program came back, and nothing had arrived for which the thread would have been needed.
    returned_completion_ = false;
    doubts_ = std::max(doubts_ - 1, 0);
}

void DrivePolicy::arrived(Instant now) {
    if (unanswered_) answers_ = 0;  // A peer that sends twice does not wait for an answer.
    unanswered_ = true;
    arrived_at_ = now;
}

bool DrivePolicy::gather(const Situation& situation, bool in_flight) {
    const bool looks_soon = situation.thread_wakes <= situation.now + 2 * kWatch;
    const bool waits = in_flight && trusted() && !situation.armed && looks_soon &&
                       polls_after_posts_ == kPollsNeeded && gathered_ < kGatherMax;
    if (waits) ++gathered_;
    return waits;
}

void DrivePolicy::posted(Instant now) {
    if (!std::exchange(posted_, true)) first_post_ = now;
    posted_at_ = now;
    if (!unanswered_) return;
    unanswered_ = false;
    answers_ = now - arrived_at_ < kAnswerGap ? std::min(answers_ + 1, kAnswersNeeded) : 0;
}

bool DrivePolicy::ack_waits(const Debt& debt) const {
    return !debt.completions && answers_expected() && debt.only_acks;
}

bool DrivePolicy::run_first(const Situation& situation, const Debt& debt, bool completion) const {
    if (!debt.due) return false;
    if (!completion || debt.completions) return true;
    const bool looks_soon = situation.thread_wakes <= situation.now + 2 * kWatch;
    return !comes_back(situation) && !(looks_soon && ack_waits(debt));
}

DrivePolicy::Answer DrivePolicy::poll_ends(const Situation& situation, Found found) {
    if (found.completion) {
        empty_polls_ = 0;
        returned_completion_ = true;
        sleep_expected_ = false;
        return {.arming = trusted() ? Arming::Keep : arm(situation.armed)};
    }
    if (found.packets) {
        empty_polls_ = 0;
        return {};
    }
    const bool spinning = situation.now - last_empty_poll_ < kSpinGap;
    last_empty_poll_ = situation.now;
    empty_polls_ = spinning ? empty_polls_ + 1 : 1;
    if (empty_polls_ == 1) restart_spin(situation.now);
    Answer answer;
    if (empty_polls_ >= 2 && !sleep_expected_) answer = disarm(situation);
    answer.give_way = situation.now - spins_since_ >= kSpinBeforeYield &&
                      empty_polls_ - polls_at_yield_ >= kPollsBeforeYield;
    if (answer.give_way) restart_spin(situation.now);
    return answer;
}

void DrivePolicy::restart_spin(Instant now) {
    spins_since_ = now;
    polls_at_yield_ = empty_polls_;
}

DrivePolicy::Answer DrivePolicy::sleep_expected(const Situation& situation) {
    sleep_expected_ = true;
    return {.arming = arm(situation.armed)};
}

DrivePolicy::Arming DrivePolicy::arm(bool armed) {
    if (armed) return Arming::Keep;
    watched_ = true;
    return Arming::Arm;
}

DrivePolicy::Answer DrivePolicy::disarm(const Situation& situation) {
    // Longer, so dearer, for a program that is trusted: done once, though not armed just now.
    if (trusted() ? !watched_ : !situation.armed) return {};
    if (trusted()) watched_ = false;
    return {.arming = trusted() ? Arming::DisarmForLong : Arming::Disarm,
            .wake_thread = situation.thread_wakes > situation.now + 2 * kWatch};
}

bool DrivePolicy::needs_thread(const Situation& situation, Instant due) const {
    if (due >= situation.thread_wakes) return false;
    // A program that always comes back sees to what falls due before the thread's next look.
    const bool looks_soon = situation.thread_wakes <= situation.now + 2 * kWatch;
    return !(trusted() && !situation.armed && looks_soon);
}

bool DrivePolicy::leave_arrival(std::uint64_t polls) {
    const bool polled = std::exchange(polls_at_arrival_, polls) != polls;
    return !trusted() && polled && !sleep_expected_ && --arrivals_to_trial_ <= 0;
}

void DrivePolicy::trial_ends(bool came_back) {
    trial_gap_ = came_back ? 1 : std::min(2 * trial_gap_, kTrialGapMax);
    arrivals_to_trial_ = trial_gap_;
    if (came_back) doubts_ = std::max(doubts_ - kTrialWorth, 0);
}

void DrivePolicy::thread_took_arrival() {
    // With a poll since the last completion this was a race with a poller, and proves nothing.
    if (!returned_completion_) return;
    returned_completion_ = false;
    doubts_ = kDoubtsMax;
}

DrivePolicy::Arming DrivePolicy::thread_sleeps(const Situation& situation) {
    return arm(situation.armed);
}

}  // namespace feroce::process
