// DrivePolicy: decides, for one shard, which thread takes what arrives. It is fed with events and
// answers what the shard must do; it has no clock, lock or thread, so it is tested as a value.
//
// Two kinds of threads can drive the engine: threads of the program, while they poll, and the
// shard's own thread, which sleeps in the port. The port is *armed* when an arrival wakes that
// thread. Each of the two would disturb the other: while a program polls, waking the thread for
// every arrival costs more than the arrival; once it has stopped polling, only the thread is left.
//
// The rules:
//  1. A program that polls in vain twice in a row takes what arrives: the port is disarmed.
//  2. A program that gets a completion may go away with it. The port is armed before the completion
//     is returned, unless the program is *trusted*: it has come back from kDoubtsMax completions.
//     One arrival for which the thread was needed takes the trust away.
//  3. A program that asked for an event is about to sleep: armed until its next completion.
//  4. Trust is also won by trials: an arrival that woke the thread is left to the program for a
//     moment (kTrial). If the program does not come for it, the next trial is twice as far away.
//  5. While the port is disarmed the thread looks every kWatch whether somebody still polls, and
//     takes over if not.
//  6. What was received is acknowledged before the program can see a completion of it, because the
//     program may end then: the engine runs first.
//  7. An acknowledgement that no completion waits for (of a WRITE) may wait for a program that will
//     post or poll soon, so that both leave in one send: one that is trusted and has a completion
//     to take, or that has answered the last kAnswersNeeded arrivals with posts. It waits no longer
//     than kAnswerGap for our thread, or its next look. Before it waits the
//     shard leaves it behind (ADR 15), and sends it at once if there is no room for that.
//  8. A post may wait for the poll that follows it, so that several leave in one send: only while
//     earlier ones are in flight, up to kGatherMax of them, and of a trusted program that has
//     polled right after each of its last kPollsNeeded posts. One that does not is found by our
//     thread's next look, and counted from the beginning.
//  9. A program in the midst of its posts counts as one that polls: it will when it has posted all.
//     Not if it goes on posting for longer than kWatch.
//
// Invariant: at any time the port is armed, or the thread looks within 2 * kWatch, or it is awake.
// So an arrival waits for nobody longer than that, and for a program that posts kWatch more.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/time.hpp"

namespace feroce::process {

class DrivePolicy {
public:
    // How often the thread looks whether pollers are still there.
    static constexpr Duration kWatch = std::chrono::milliseconds(1);
    // Two empty polls this close mean a poller that spins, not a program that looks now and then.
    static constexpr Duration kSpinGap = std::chrono::microseconds(20);
    // Completions that a program must take and come back from before it is trusted.
    static constexpr int kDoubtsMax = 64;
    // How long an arrival is left to a program that may come back by itself, how many doubts its
    // return takes away, and how seldom we try if it does not return.
    static constexpr Duration kTrial = std::chrono::microseconds(200);
    static constexpr int kTrialWorth = 16;
    static constexpr int kTrialGapMax = 1 << 16;
    // Arrivals in a row that a program must have answered, and how soon.
    static constexpr int kAnswersNeeded = 16;
    static constexpr Duration kAnswerGap = std::chrono::microseconds(50);
    // Posts in a row that a poll must have followed, how soon, and how many are gathered at most.
    static constexpr int kPollsNeeded = 64;
    static constexpr Duration kPollGap = std::chrono::microseconds(10);
    static constexpr int kGatherMax = 16;
    // A program spins for what another process on the same core may be about to send. By time, as
    // an empty poll costs a system call, or next to nothing where packets come by memory; and by
    // number, as a program that works between polls does not spin.
    static constexpr Duration kSpinBeforeYield = std::chrono::microseconds(5);
    static constexpr std::uint32_t kPollsBeforeYield = 16;

    // What the shard knows when it asks.
    struct Situation {
        Instant now;
        bool armed = false;
        Instant thread_wakes;  // When the thread's sleep ends; past if it is awake.
    };
    // What a poll found: packets in the port, and completions in the queue it is for.
    struct Found {
        bool packets = false;
        bool completion = false;
    };
    enum class Arming : std::uint8_t { Keep, Arm, Disarm, DisarmForLong };
    struct Answer {
        Arming arming = Arming::Keep;
        bool wake_thread = false;  // It must look soon: nothing else would wake it.
        bool give_way = false;     // Somebody else may need this core.
    };

    // What the engine has to do after the driver looked at the port.
    struct Debt {
        bool due = false;          // Something to send, or a timer.
        bool completions = false;  // That wait for their acknowledgement.
        // All it would send. Asked only if answers_expected(), and not of a program that
        // comes_back().
        bool only_acks = false;
    };

    // Packets came in, and the engine has something to send because of them; a program posts; the
    // thread finds an old debt and nothing new.
    void arrived(Instant now);
    void posted(Instant now);
    void answer_overdue() {
        answers_ = unanswered_ ? 0 : answers_;
        if (gathered_ > 0) polls_after_posts_ = 0;
    }
    // Rule 8, after posted(): may what was posted wait for the next poll? `in_flight`: something
    // that was posted before.
    bool gather(const Situation& situation, bool in_flight);
    // After posted(): the program is in the midst of its posts, and polls after them.
    bool polls_soon() const { return posted_at_ - first_post_ < kWatch; }
    bool has_gathered() const { return gathered_ > 0; }
    void sent() { gathered_ = 0; }  // All that was posted.
    bool answers_expected() const { return answers_ == kAnswersNeeded; }
    // Rules 6 and 7: must a poller that has a completion to take, or not, run the engine first?
    bool run_first(const Situation& situation, const Debt& debt, bool completion) const;
    // May the thread leave it all for kAnswerGap?
    bool ack_waits(const Debt& debt) const;
    // A thread of the program begins to drive, and what it found.
    void poll_begins(Instant now);
    Answer poll_ends(const Situation& situation, Found found);
    Answer sleep_expected(const Situation& situation);
    // Something falls due at `due`: must the thread be woken for it?
    bool needs_thread(const Situation& situation, Instant due) const;

    // The thread has woken up because of an arrival, and `polls` polls were counted so far. True:
    // it is left to the program for kTrial; trial_ends() follows.
    bool leave_arrival(std::uint64_t polls);
    void trial_ends(bool came_back);
    void thread_took_arrival();
    Arming thread_sleeps(const Situation& situation);

    bool trusted() const { return doubts_ == 0; }
    // The program will poll again before our thread looks: what waits now leaves then.
    bool comes_back(const Situation& situation) const { return trusted() && !situation.armed; }
    int doubts() const { return doubts_; }
    bool expects_sleep() const { return sleep_expected_; }

private:
    void restart_spin(Instant now);
    Answer disarm(const Situation& situation);
    Arming arm(bool armed);

    int doubts_ = kDoubtsMax;
    std::uint32_t empty_polls_ = 0;     // In a row.
    bool returned_completion_ = false;  // And nobody has polled since.
    bool watched_ = false;              // Armed since it was last disarmed for long.
    bool sleep_expected_ = false;       // An event was asked for; no completion returned since.
    // How many arrivals from now, and after the next one, an arrival is left to the program.
    int arrivals_to_trial_ = 1;
    int trial_gap_ = 1;
    std::uint64_t polls_at_arrival_ = 0;
    // How often of late a post followed an arrival closely, up to kAnswersNeeded.
    int answers_ = 0;
    bool unanswered_ = false;  // Something arrived that we owe for, and no post followed.
    Instant arrived_at_{};
    // Posts that a poll followed closely, in a row, up to kPollsNeeded; and those that wait.
    int polls_after_posts_ = 0;
    int gathered_ = 0;
    bool posted_ = false;  // And nobody has polled since.
    Instant first_post_{};
    Instant posted_at_{};
    Instant last_empty_poll_{};
    Instant spins_since_{};             // Or gave way last.
    std::uint32_t polls_at_yield_ = 0;  // Value of empty_polls_ then.
};

}  // namespace feroce::process
