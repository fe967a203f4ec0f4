/* Acknowledgement before completion: a receiving process with several threads, which may end at any
 * instant. The peer must never wait for an acknowledgement of something that the program has seen.
 *
 * Two queue pairs get REQUESTS requests each: SENDs, and READs whose answer takes TURNS turns, in
 * an order that is left open. POLLERS threads of the program drive the engine under a try-lock and
 * take completions without it; one thread of the device drives what they leave. A driver takes any
 * number of requests from the socket and executes them, lets the engine run (a turn for every queue
 * pair: READ answers first, then the acknowledgement of all that was executed), transmits, and only
 * then publishes the completions of what is acknowledged. What was transmitted is the kernel's and
 * outlives the process. An answer to a READ acknowledges what was asked for before it.
 *
 * Invariants:
 *   ack_first     a completion that the program takes was acknowledged; assert(taken <= acked)
 *   reads_first   an acknowledgement does not overtake a READ's answer; assert(left == 0)
 *   nothing_kept  a process that lives publishes all it has executed;   assert(all_taken)
 *   no deadlock   Spin's own check for invalid end states
 *
 * -DIMMORTAL leaves death out, so that nothing_kept has a meaning.
 * -DBUG_COMPLETE_FIRST (published when executed), -DBUG_PUBLISH_FIRST (published when the
 * acknowledgement was built, before it was transmitted), -DBUG_BLIND_RELEASE (a transmit releases
 * also what waits for a READ), -DBUG_OVERTAKE (acknowledges before the READ is answered),
 * -DBUG_NO_LOOK (nobody goes on with what a poller left) break one rule each; models/check.py
 * demands that Spin finds every one of them.
 */

#ifndef REQUESTS
#define REQUESTS 3
#endif
#ifndef POLLERS
#define POLLERS 2
#endif
#define QPS 2
#define TURNS 2         /* That a READ's answer takes. */

byte sent[QPS];         /* Requests that the peer has sent. */
byte executed[QPS];     /* Taken from the socket and executed. */
byte reading[QPS];      /* The READ that is being answered; one at a time. */
byte left[QPS];         /* Turns that its answer still takes. */
bool owes[QPS];         /* An acknowledgement of what was executed. */
byte built[QPS];        /* Acknowledged by packets that were built. */
byte acked[QPS];        /* Acknowledged by packets that the kernel has. */
byte published[QPS];    /* Completions up to here are visible to any thread. */
byte taken[QPS];        /* By the program. */
bool locked;
bool dead;              /* The process is gone; the kernel and the peer are not. */

#define waiting(q) (executed[q] < sent[q])
#define unfinished(q) (left[q] > 0 || owes[q] || published[q] < executed[q])
#define all_taken (taken[0] == REQUESTS && taken[1] == REQUESTS)

inline receive(q) {     /* Any number of what is there. */
    do
    :: executed[q] < sent[q] ->
        executed[q]++;
        if
        :: left[q] == 0 -> reading[q] = executed[q]; left[q] = TURNS
        :: true -> owes[q] = true
        fi
#ifdef BUG_COMPLETE_FIRST
        ; published[q] = executed[q]
#endif
    :: break
    od
}

inline turn(q) {        /* READ answers first, then the acknowledgement. */
#ifdef BUG_OVERTAKE
    if
    :: owes[q] -> assert(left[q] == 0); built[q] = executed[q]; owes[q] = false
    :: else
    fi;
#endif
    if
    :: left[q] > 0 ->
        left[q]--;
        built[q] = (left[q] > 0 -> reading[q] - 1 : reading[q]);
        reading[q] = (left[q] > 0 -> reading[q] : 0)
    :: else
    fi;
    if
    :: left[q] == 0 && owes[q] ->
        assert(left[q] == 0);                                          /* reads_first */
        built[q] = executed[q]; owes[q] = false
    :: else
    fi
}

inline publish(q) {
#ifdef BUG_BLIND_RELEASE
    published[q] = executed[q]
#else
#ifdef BUG_PUBLISH_FIRST
    published[q] = built[q]
#else
    published[q] = acked[q]
#endif
#endif
}

/* Every step of a driver can be seen by others, and can be its last. */
#define STEP(x) atomic { if :: dead -> goto gone :: else -> x fi }

inline drive() {
    STEP(receive(0); receive(1));
    STEP(turn(0); turn(1));
#ifdef BUG_PUBLISH_FIRST
    STEP(publish(0); publish(1));
#endif
    STEP(acked[0] = built[0]; acked[1] = built[1]);
    STEP(publish(0); publish(1));
    STEP(locked = false)
}

active proctype peer() {
    do
    :: atomic { sent[0] < REQUESTS -> sent[0]++ }
    :: atomic { sent[1] < REQUESTS -> sent[1]++ }
    :: atomic { sent[0] == REQUESTS && sent[1] == REQUESTS -> break }
    od
}

inline take(q) {        /* A READ has no completion: taking its number is nothing to the program. */
    taken[q]++;
    assert(taken[q] <= acked[q])                                       /* ack_first */
}

active [POLLERS] proctype poller() {
    do
    :: atomic { !dead && !locked && (waiting(0) || waiting(1)) -> locked = true };
        drive()
    :: atomic { !dead && taken[0] < published[0] -> take(0) }
    :: atomic { !dead && taken[1] < published[1] -> take(1) }
    :: atomic { dead || all_taken -> break }
    od;
gone: skip
}

active proctype device_thread() {
    do
    :: atomic { !dead && !locked && (waiting(0) || waiting(1)
#ifndef BUG_NO_LOOK
                                     || unfinished(0) || unfinished(1)
#endif
                                     ) -> locked = true };
        drive()
    :: atomic { dead || all_taken -> break }
    od;
gone: skip
}

active proctype death() {
    if
#ifndef IMMORTAL
    :: atomic { dead = true }
#endif
    :: atomic { all_taken -> skip }
    :: timeout -> assert(all_taken)                                    /* nothing_kept */
    fi
}
