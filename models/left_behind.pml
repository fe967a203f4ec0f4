/* Acknowledgements that wait, and a process that may end at any instant (src/port/packet_ring.cpp,
 * src/device/engine.cpp: leave_acks_behind()).
 *
 * The peer sends WRITES WRITEs. A process takes each and stores it, and leaves what it owes for it
 * in the ring, in PLACES places, before its program goes on: bytes first, then their count. At some
 * time, at the latest when there is no place left, it sends an acknowledgement of all by the ring,
 * and then takes back what it left. It may die before any step. The peer reads the ring while the
 * process lives; when it has heard of its death it reads the rest, and then what was left behind.
 * Every access to shared memory is a step of its own, in the order of the program: of a process
 * that has ended that is what its memory shows, whatever the processor.
 *
 * Invariants:
 *   seen_is_acked   what the program has seen is acknowledged at last;  assert(acked >= seen)
 *   only_done       no more is acknowledged than was stored;            assert(acked <= stored)
 *
 * -DBUG_TAKE_BACK_FIRST (what was left is taken back before the acknowledgement is in the ring),
 * -DBUG_COUNT_FIRST (counted before its bytes are there), -DBUG_SEEN_FIRST (the program goes on
 * before it is left), -DBUG_FULL (a WRITE for which there is no place waits all the same),
 * -DBUG_BLIND (the peer gives the ring up without a look at what was left) break one rule each.
 */

#ifndef WRITES
#define WRITES 4
#endif
#define PLACES 2

byte stored;            /* WRITEs in the memory of the process. */
byte seen;              /* Of these by its program. */
byte ring;              /* The last acknowledgement that was sent. */
byte count;
byte legacy[PLACES];    /* What each acknowledges. */
#define TORN 255        /* Half written. */
byte acked;             /* What the peer knows. */
bool dead;
bool over;              /* Nothing is left to do for the process. */

#define MAY_DIE if :: true -> goto gone :: true -> skip fi

inline take(what) { if :: acked < what -> acked = what :: else -> skip fi }

inline send() {
#ifdef BUG_TAKE_BACK_FIRST
    count = 0;
    MAY_DIE;
    ring = stored;
#else
    ring = stored;
    MAY_DIE;
    count = 0;
#endif
    MAY_DIE
}

active proctype Process() {
    do
    :: stored < WRITES ->
        stored++;
        MAY_DIE;
#ifdef BUG_SEEN_FIRST
        seen = stored;
        MAY_DIE;
#endif
        if
        :: count < PLACES ->
#ifdef BUG_COUNT_FIRST
            count++;
            MAY_DIE;
            legacy[count - 1] = TORN;
            MAY_DIE;
            legacy[count - 1] = stored;
#else
            legacy[count] = TORN;
            MAY_DIE;
            legacy[count] = stored;
            MAY_DIE;
            count++;
#endif
            MAY_DIE
        :: count == PLACES ->
#ifdef BUG_FULL
            skip
#else
            send()
#endif
        fi;
        seen = stored;          /* The poll returns. */
        MAY_DIE
    :: ring < stored -> send()  /* With what the program posts, or when it is late. */
    :: stored == WRITES && ring == stored -> break
    od;
gone:
    dead = true
}

active proctype Peer() {
    byte i;
    do
    :: acked < ring -> take(ring)
    :: dead -> break
    od;
    take(ring);
#ifndef BUG_BLIND
    for (i : 0 .. PLACES - 1) {
        if
        :: i < count -> take(legacy[i])
        :: else -> skip
        fi
    }
#endif
    assert(acked >= seen);                                             /* seen_is_acked */
    assert(acked <= stored)                                            /* only_done */
}
