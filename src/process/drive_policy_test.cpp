// DrivePolicy as a value: a table of short stories, and long random ones against the invariants.
#include "process/drive_policy.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/random.hpp"

namespace feroce::process {
namespace {

using namespace std::chrono_literals;
using Arming = DrivePolicy::Arming;

constexpr Duration kSoon = 2 * DrivePolicy::kWatch;

// A shard around the policy, without threads: does what it answers and keeps what it asks for.
struct Stage {
    DrivePolicy policy;
    Instant now = Instant{} + 1s;
    bool armed = false;
    Instant thread_wakes = kNever;
    std::uint64_t polls = 0;
    std::uint64_t polls_seen = 0;

    DrivePolicy::Situation situation() const { return {now, armed, thread_wakes}; }
    void apply(Arming arming) {
        if (arming != Arming::Keep) armed = arming == Arming::Arm;
    }
    DrivePolicy::Answer poll(DrivePolicy::Found found, Duration after = 1us) {
        now += after;
        ++polls;
        policy.poll_begins(now);
        const DrivePolicy::Answer answer = policy.poll_ends(situation(), found);
        apply(answer.arming);
        if (answer.wake_thread) thread_wakes = now;
        return answer;
    }
    void empty_poll() { poll({}); }
    // True: it waits for the next poll.
    bool post(bool in_flight = true) {
        policy.posted(now);
        const bool waits = policy.gather(situation(), in_flight);
        if (!waits) policy.sent();
        return waits;
    }
    void full_poll() { poll({.packets = true, .completion = true}); }
    void expect_sleep() { apply(policy.sleep_expected(situation()).arming); }
    // An arrival that wakes the thread. True: the thread takes it.
    bool arrive() {
        armed = false;
        thread_wakes = now;
        if (policy.leave_arrival(polls)) return false;
        take_over();
        return true;
    }
    void take_over() {
        policy.thread_took_arrival();
        thread_sleeps();
    }
    void thread_sleeps() {
        apply(policy.thread_sleeps(situation()));
        polls_seen = polls;
        thread_wakes = kNever;
    }
    // The thread's sleep is over without an arrival: is anybody polling?
    void thread_looks() {
        now = std::max(now, thread_wakes);
        if (polls == polls_seen) return thread_sleeps();
        polls_seen = polls;
        thread_wakes = now + DrivePolicy::kWatch;
    }
    void win_trust() {
        for (int i = 0; i <= DrivePolicy::kDoubtsMax; ++i) {
            full_poll();
            empty_poll();
        }
        ASSERT_TRUE(policy.trusted());
    }
};

// Steps: e an empty poll, s one long after the last, f a full one, r one that found packets only,
// n a request for an event, a an arrival while armed, t the end of a trial in vain, w the
// thread's look. Then whether the port must be armed.
struct Story {
    const char* steps;
    bool armed;
    const char* why;
};

const Story kStories[] = {
    {"e", false, "nothing was armed yet"},
    {"f", true, "a new program may go away with its completion"},
    {"fe", true, "one empty poll is no spinning"},
    {"fee", false, "a program that spins takes arrivals itself"},
    {"fes", true, "a program that looks now and then does not"},
    {"feer", false, "packets without a completion change nothing"},
    {"feef", true, "armed again with the next completion"},
    {"n", true, "a sleeper is woken by the thread"},
    {"neee", true, "though it polls once more in vain"},
    {"neeefee", false, "until it has its completion"},
    {"fa", false, "the first arrival is left to the program"},
    {"faee", false, "which comes back for it"},
    {"fat", true, "or does not: then the thread takes it and sleeps armed"},
    {"feew", false, "the thread looks on while somebody polls"},
    {"feeww", true, "and takes over when nobody does"},
};

void play(Stage& stage, const char* steps) {
    for (const char* step = steps; *step != 0; ++step) {
        switch (*step) {
            case 'e':
                stage.empty_poll();
                break;
            case 's':
                stage.poll({}, 1ms);
                break;
            case 'f':
                stage.full_poll();
                break;
            case 'r':
                stage.poll({.packets = true});
                break;
            case 'n':
                stage.expect_sleep();
                break;
            case 'a':
                ASSERT_TRUE(stage.armed) << "nothing would wake the thread";
                stage.arrive();
                break;
            case 't':
                stage.policy.trial_ends(false);
                stage.take_over();
                break;
            default:
                stage.thread_looks();
        }
    }
}

TEST(DrivePolicy, Stories) {
    for (const Story& story : kStories) {
        SCOPED_TRACE(std::string(story.steps) + ": " + story.why);
        Stage stage;
        play(stage, story.steps);
        EXPECT_EQ(stage.armed, story.armed);
    }
}

// Rules 6 and 7: what a poller does first.
struct Order {
    bool due, completions, only_acks;  // Of the debt.
    bool trusted, answers;             // Of the program.
    bool completion;                   // It has one to take.
    bool run;
    const char* why;
};

const Order kOrders[] = {
    {false, false, false, false, false, true, false, "there is nothing to run"},
    {true, false, false, false, false, false, true, "nothing keeps the poller"},
    {true, false, false, false, false, true, true, "a new program may go away"},
    {true, false, true, false, true, true, false, "the answer takes the acknowledgement along"},
    {true, false, false, false, true, true, true, "but nothing else"},
    {true, false, false, true, false, true, false, "a trusted program comes back"},
    {true, true, true, false, true, true, true, "it might end with the completion"},
    {true, true, true, true, true, true, true, "trusted or not"},
    {true, true, false, true, false, false, true, "and there is one in any case"},
};

void make_answering(DrivePolicy& policy, Instant now) {
    for (int i = 0; i < DrivePolicy::kAnswersNeeded; ++i) {
        policy.arrived(now);
        policy.posted(now + 1us);
    }
}

TEST(DrivePolicy, AcknowledgesBeforeACompletionIsSeen) {
    for (const Order& order : kOrders) {
        SCOPED_TRACE(order.why);
        Stage stage;
        if (order.trusted) stage.win_trust();
        if (order.answers) make_answering(stage.policy, stage.now);
        EXPECT_EQ(stage.policy.answers_expected(), order.answers);
        const DrivePolicy::Debt debt{order.due, order.completions, order.only_acks};
        const DrivePolicy::Situation watched{stage.now, false, stage.now + 1ms};
        EXPECT_EQ(stage.policy.run_first(watched, debt, order.completion), order.run);
        // Without a thread that looks soon an acknowledgement would wait for ever.
        const DrivePolicy::Situation alone{stage.now, false, kNever};
        if (order.due && !order.trusted) {
            EXPECT_TRUE(stage.policy.run_first(alone, debt, order.completion));
        }
        EXPECT_EQ(stage.policy.ack_waits(debt),
                  order.answers && order.only_acks && !order.completions);
    }
}

TEST(DrivePolicy, ExpectsAnswersOnlyWhereTheyCome) {
    DrivePolicy policy;
    const Instant now = Instant{} + 1s;
    make_answering(policy, now);
    ASSERT_TRUE(policy.answers_expected());
    policy.arrived(now);
    policy.arrived(now);
    EXPECT_FALSE(policy.answers_expected()) << "a stream";
    make_answering(policy, now);
    policy.arrived(now);
    policy.posted(now + 1ms);
    EXPECT_FALSE(policy.answers_expected()) << "too late";
    make_answering(policy, now);
    policy.answer_overdue();
    EXPECT_TRUE(policy.answers_expected()) << "nothing is owed an answer";
    policy.arrived(now);
    policy.answer_overdue();
    EXPECT_FALSE(policy.answers_expected()) << "none came";
}

TEST(DrivePolicy, TrustIsWonByComingBackAndLostByOneArrival) {
    Stage stage;
    stage.win_trust();
    stage.empty_poll();
    stage.full_poll();
    EXPECT_FALSE(stage.armed);
    stage.take_over();
    EXPECT_FALSE(stage.policy.trusted());
    EXPECT_TRUE(stage.armed);
}

TEST(DrivePolicy, LeavesTheThreadAloneForATrustedProgramOnlyWhileItLooks) {
    Stage stage;
    stage.win_trust();
    stage.empty_poll();
    ASSERT_FALSE(stage.armed);
    const Instant due = stage.now + 10us;
    EXPECT_FALSE(stage.policy.needs_thread({stage.now, false, stage.now + 1ms}, due));
    EXPECT_TRUE(stage.policy.needs_thread({stage.now, false, stage.now + 1h}, due));
    EXPECT_TRUE(stage.policy.needs_thread({stage.now, true, stage.now + 1ms}, due));
    EXPECT_FALSE(stage.policy.needs_thread({stage.now, true, due}, due));
    EXPECT_TRUE(DrivePolicy{}.needs_thread({stage.now, false, stage.now + 1ms}, due));
}

TEST(DrivePolicy, TriesEverMoreSeldomInVain) {
    Stage stage;
    int trials = 0;
    for (int i = 0; i < 1000; ++i) {
        stage.full_poll();
        ASSERT_TRUE(stage.armed);
        if (stage.arrive()) continue;
        ++trials;
        stage.policy.trial_ends(false);
        stage.take_over();
    }
    EXPECT_GE(trials, 2);
    EXPECT_LE(trials, 11);
}

// A program that is trusted and spins, and posts between its polls.
Stage busy_poller() {
    Stage stage;
    stage.thread_sleeps();
    for (int i = 0; i <= DrivePolicy::kDoubtsMax; ++i) stage.full_poll();
    for (int i = 0; i < 3; ++i) stage.empty_poll();
    stage.thread_wakes = stage.now + DrivePolicy::kWatch;
    for (int i = 0; i < DrivePolicy::kPollsNeeded; ++i) {
        EXPECT_FALSE(stage.post()) << i;
        stage.empty_poll();
    }
    stage.thread_wakes = stage.now + DrivePolicy::kWatch;
    return stage;
}

TEST(DrivePolicy, GathersPostsOfAProgramThatPollsAfterEach) {
    Stage stage = busy_poller();
    EXPECT_FALSE(stage.post(false)) << "a lone one leaves at once";
    for (int i = 0; i < DrivePolicy::kGatherMax; ++i) EXPECT_TRUE(stage.post()) << i;
    EXPECT_FALSE(stage.post()) << "enough for one send";
    EXPECT_FALSE(stage.policy.has_gathered());
    EXPECT_TRUE(stage.post());
    EXPECT_TRUE(stage.policy.has_gathered());
}

TEST(DrivePolicy, AProgramThatPostsAndNeverPollsDoesNotCountAsOneThatPolls) {
    Stage stage;
    for (Duration time{0}; time < DrivePolicy::kWatch; time += 100us, stage.now += 100us) {
        stage.post();
        EXPECT_TRUE(stage.policy.polls_soon());
    }
    stage.post();
    EXPECT_FALSE(stage.policy.polls_soon());
    stage.empty_poll();
    stage.post();
    EXPECT_TRUE(stage.policy.polls_soon());
}

TEST(DrivePolicy, GathersNothingOfAProgramThatDoesNotPollSoon) {
    Stage stage = busy_poller();
    EXPECT_TRUE(stage.post());
    stage.poll({}, DrivePolicy::kPollGap);
    EXPECT_FALSE(stage.post()) << "it came late";
    stage = busy_poller();
    EXPECT_TRUE(stage.post());
    stage.policy.answer_overdue();
    EXPECT_FALSE(stage.post()) << "the thread had to send it";
    stage = busy_poller();
    stage.expect_sleep();
    EXPECT_FALSE(stage.post()) << "it is about to sleep";
    stage = busy_poller();
    stage.thread_wakes = kNever;
    EXPECT_FALSE(stage.post()) << "the thread would not look";
}

// What must hold after every event, whatever came before.
void check(const Stage& stage) {
    const DrivePolicy& policy = stage.policy;
    ASSERT_TRUE(stage.armed || stage.thread_wakes <= stage.now + kSoon)
        << "an arrival would wake nobody";
    ASSERT_GE(policy.doubts(), 0);
    ASSERT_LE(policy.doubts(), DrivePolicy::kDoubtsMax);
}

class RandomEvents {
public:
    explicit RandomEvents(std::uint64_t seed) : random_(seed) { stage_.thread_sleeps(); }

    void step() {
        const bool sleeper = stage_.policy.expects_sleep();
        const bool was_armed = stage_.armed;
        switch (random_.next() % 9) {
            case 8:
                if (!stage_.post()) break;
                // Rule 8.
                ASSERT_TRUE(stage_.policy.trusted() && !stage_.armed);
                ASSERT_LE(stage_.thread_wakes, stage_.now + kSoon) << "a post that nobody sends";
                break;
            case 0:
            case 1:
            case 2:
                stage_.poll({}, pause());
                // Rule 3.
                ASSERT_TRUE(!sleeper || !was_armed || stage_.armed) << "a sleeper is forgotten";
                break;
            case 3:
                stage_.poll({.packets = true}, pause());
                ASSERT_EQ(stage_.armed, was_armed);
                break;
            case 4:
                stage_.full_poll();
                // Rule 2.
                ASSERT_TRUE(stage_.armed || stage_.policy.trusted());
                break;
            case 5:
                stage_.expect_sleep();
                ASSERT_TRUE(stage_.armed);
                break;
            case 6:
                if (stage_.armed) arrive();
                break;
            default:
                if (stage_.thread_wakes != kNever) stage_.thread_looks();
        }
        check(stage_);
    }

private:
    Duration pause() { return random_.next() % 4 == 0 ? Duration(1ms) : Duration(1us); }
    void arrive() {
        const bool sleeper = stage_.policy.expects_sleep();
        if (stage_.arrive()) return;
        ASSERT_FALSE(sleeper) << "left to a program that sleeps";
        const bool came_back = random_.next() % 2 == 0;
        if (came_back) stage_.full_poll();
        stage_.policy.trial_ends(came_back);
        if (!came_back) stage_.take_over();
    }

    Prng random_;
    Stage stage_;
};

TEST(DrivePolicy, KeepsItsInvariantsUnderRandomEvents) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        RandomEvents events(seed);
        for (int i = 0; i < 2000 && !testing::Test::HasFatalFailure(); ++i) events.step();
        if (HasFatalFailure()) return;
    }
}

TEST(DrivePolicy, AProgramThatSpinsGivesItsCoreAwayNowAndThen) {
    Stage stage;
    const auto given_away = [&stage](int polls, Duration gap) {
        int count = 0;
        for (int i = 0; i < polls; ++i) count += stage.poll({}, gap).give_way ? 1 : 0;
        return count;
    };
    EXPECT_EQ(given_away(1000, 50ns), 9) << "every five microseconds";
    stage.full_poll();
    EXPECT_EQ(given_away(160, 1us), 9) << "every sixteen polls";
    stage.full_poll();
    EXPECT_EQ(given_away(1000, 30us), 0) << "it works between its polls";
}

}  // namespace
}  // namespace feroce::process
