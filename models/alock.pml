/* ALock: one mutex for threads of its home node (CPU) and of other nodes (RDMA).
 *
 * Each side has an MCS queue; its tail says "somebody of this side wants the lock", so the two
 * tails are Peterson's flags and `victim` is his turn. Only the head of a queue plays Peterson; it
 * hands the lock on within its side until the budget is used up, then plays again.
 *
 * The atomicity gap of NICs is modelled: a NIC's atomic is two steps, a read and a write. They
 * exclude other atomics of the NIC but nothing the CPU does. Every other access is one step of one
 * word, and a test and what follows from it are different steps.
 *
 * -DFAST     a head that sees the other tail empty enters without touching `victim`: with the READ
 *            chained behind the CAS this is one round trip.
 * -DSWAP     `victim` is set by a compare-and-swap loop of the NIC instead of a plain WRITE.
 * -DTRY      a head that would have to play may leave instead, as try_lock does.
 * -DFAIR     the fair lock: all of the above guards only the drawing of a ticket.
 * -DTIMEOUT  callers may give up at any time; their places keep their turns and pass them on. WATCH
 *            does not give up.
 *
 * Invariants:
 *   mutual_exclusion   assert(inside == 1)
 *   no deadlock        Spin's own check for invalid end states
 *   no starvation      ltl served, under weak fairness, for user WATCH once it stands in its queue
 *                      (a swap made of compare-and-swaps can by its nature lose to others for ever)
 *
 * -DBUG_SPECULATIVE     the victim WRITE is chained behind the CAS before its result is known
 * -DBUG_READ_FIRST      the READ of the fast path runs before the CAS
 * -DBUG_MIXED_RMW       both sides use one queue: CPU atomics and NIC atomics on one word
 * -DBUG_NO_BUDGET       the lock is handed on within a side for ever
 * -DBUG_LEAVES          (TIMEOUT) a caller that gives up takes its place with it
 * -DBUG_EARLY_HANDOVER  (FAIR) the queue is handed on before the ticket is drawn
 */

#ifndef LOCALS
#define LOCALS 2
#endif
#ifndef REMOTES
#define REMOTES 2
#endif
#ifndef BUDGET
#define BUDGET 1
#endif
#ifndef WATCH
#define WATCH 1         /* 1 .. LOCALS are local, the others remote. */
#endif
#define USERS (LOCALS + REMOTES)
#define TICKETS 8       /* More than users, so that a wrapped ticket means one of them. */

#define LOCAL 0
#define REMOTE 1
#define NOBODY 0
#define WAITING 255
#define other (1 - side)

#ifdef BUG_MIXED_RMW
#define queue 0
#else
#define queue side
#endif

byte tail[2];
byte victim;
byte budget[USERS + 1];
byte next[USERS + 1];
bit nic_busy;           /* Between the two steps of an atomic of the NIC. */
byte ticket_counter;    /* FAIR: guarded by the queues and Peterson. */
byte owner;             /* FAIR: written by the holder alone. */

byte inside;            /* Ghosts, for the checks. */
bit wants;
bit served_now;

/* The two steps of a NIC's compare-and-swap; `seen` is what it returns. */
inline nic_compare_and_swap(word, expected, desired) {
    atomic { !nic_busy -> nic_busy = 1; seen = word };
    atomic {
        if
        :: seen == expected -> word = desired
        :: else
        fi;
        nic_busy = 0 }
}

/* There is no swap on the wire: guess nobody, then what the last attempt returned. */
inline nic_swap(word, guess, desired) {
    expected = guess;
    do
    :: nic_compare_and_swap(word, expected, desired);
        if
        :: atomic { seen == expected -> expected = 0; break }
        :: else -> expected = seen
        fi
    od
}

inline set_victim() {
#ifdef SWAP
    if
    :: side == REMOTE -> nic_swap(victim, LOCAL, REMOTE); seen = 0
    :: else -> victim = LOCAL
    fi
#else
    victim = side
#endif
}

/* Peterson between the heads of the two queues. */
inline gate() {
    set_victim();
    do
    :: atomic { tail[other] == NOBODY -> break }
    :: atomic { tail[other] != NOBODY -> skip };
        if
        :: atomic { victim != side -> break }
        :: atomic { victim == side -> skip }
        fi
    od
}

/* A read of the other tail decides whether the gate can be skipped. */
inline enter() {
#ifdef BUG_MIXED_RMW
    skip
#else
#if defined(FAST) && !defined(BUG_READ_FIRST)
    alone = (tail[other] == NOBODY);
#endif
    if
    :: atomic { alone -> alone = 0 }
    :: else -> gate()
#ifdef TRY
    :: !alone -> gives_up = 1
#endif
    fi
#endif
}

inline acquire() {
    budget[me] = WAITING; next[me] = NOBODY;
#if defined(FAST) && defined(BUG_READ_FIRST)
    alone = (tail[other] == NOBODY);
#endif
    if
    :: side == LOCAL -> atomic { seen = tail[queue]; tail[queue] = me }
    :: side == REMOTE -> nic_swap(tail[queue], NOBODY, me)
    fi;
    if
    :: me == WATCH -> wants = 1
    :: else
    fi;
#ifdef BUG_SPECULATIVE
    if
    :: side == REMOTE -> victim = REMOTE
    :: else
    fi;
#endif
    if
    :: atomic { seen == NOBODY -> seen = 0 };
        enter(); budget[me] = (gives_up -> 0 : BUDGET)
    :: else ->
        alone = 0;
        next[seen] = me; seen = 0;
#ifdef BUG_LEAVES
        if
        :: budget[me] != WAITING
        :: me != WATCH -> goto gone
        fi;
#else
        budget[me] != WAITING;
#endif
        if
        :: budget[me] == 0 -> enter(); budget[me] = (gives_up -> 0 : BUDGET)
        :: else
        fi
    fi
}

inline release() {
    if
    :: next[me] == NOBODY ->
        if
        :: side == LOCAL ->
            atomic {
                seen = tail[queue];
                if
                :: seen == me -> tail[queue] = NOBODY
                :: else
                fi }
        :: side == REMOTE -> nic_compare_and_swap(tail[queue], me, NOBODY)
        fi
    :: else
    fi;
    if
    :: atomic { seen == me -> seen = 0 }
    :: else ->
        seen = 0;
        next[me] != NOBODY;
#ifdef BUG_NO_BUDGET
        budget[next[me]] = budget[me]
#else
        budget[next[me]] = (budget[me] > 0 -> budget[me] - 1 : 0)
#endif
    fi
}

inline critical_section() {
    atomic {
        inside++;
        assert(inside == 1);                                           /* mutual_exclusion */
        if
        :: me == WATCH -> wants = 0; served_now = 1
        :: else
        fi };
    atomic {
        inside--;
        if
        :: me == WATCH -> served_now = 0
        :: else
        fi }
}

/* What the lock is taken for; a caller that has given up meanwhile is not there any more. */
inline use() {
#ifdef TIMEOUT
    if
    :: critical_section()
    :: me != WATCH -> skip
    fi
#else
    critical_section()
#endif
}

proctype user(byte me; bit side) {
    byte seen;          /* Result of the last atomic. */
    byte expected;
    byte ticket;
    bit alone;          /* The other queue was empty, when looked at. */
    bit gives_up;

    do
    :: acquire();
#ifdef FAIR
#ifdef BUG_EARLY_HANDOVER
        release();
        ticket = ticket_counter;
        ticket_counter = (ticket + 1) % TICKETS;
#else
        ticket = ticket_counter;
        ticket_counter = (ticket + 1) % TICKETS;
        release();
#endif
        owner == ticket;
        use();
        owner = (ticket + 1) % TICKETS; ticket = 0
#else
        if
        :: !gives_up -> use()
        :: else
        fi;
        release();
        gives_up = 0
#endif
    od;
#ifdef BUG_LEAVES
gone:
    skip
#endif
}

ltl served { [] (wants -> <> served_now) }

init {
    byte i;
    atomic {
        i = 1;
        do
        :: i <= LOCALS -> run user(i, LOCAL); i++
        :: i > LOCALS && i <= USERS -> run user(i, REMOTE); i++
        :: else -> break
        od;
        i = 0 }
}
