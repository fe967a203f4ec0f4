/* How the writers of packet rings wake their reader (src/port/ring_sender.cpp, ring_receiver.cpp).
 *
 * Each of WRITERS writers puts PACKETS packets into a ring of its own. A writer whose bit is set in
 * `pending` has nothing more to do; else it sets the bit, and rings the bell if the reader is
 * armed, whether or not another has rung before. The reader looks into rings whose bit is set and
 * leaves the bit there while packets come. Before it sleeps it arms itself, clears the bits of
 * these rings, and looks into them once more. Every access to shared memory is a step of its own,
 * in one order for all: that is what sequentially consistent atomics give.
 *
 * With -DMORTAL a writer may die or be stopped for ever after any step, and the reader is not told.
 * What the others write is taken all the same.
 *
 * Invariants:
 *   no_lost_wakeup  a reader that sleeps for ever has taken everything; Spin's invalid end states
 *   in_order        no packet is taken before it was written;           assert(taken <= written)
 *
 * -DBUG_LOOK_FIRST (the reader looks before it arms itself), -DBUG_CLEAR_LATE (clears bits after it
 * has looked into the rings), -DBUG_BIT_FIRST (the writer sets its bit before it writes),
 * -DBUG_SILENT (the writer does not look whether the reader is armed), -DBUG_DISARM (a
 * writer disarms the reader before it rings, so that others do not ring again) break one rule each.
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef PACKETS
#define PACKETS 2
#endif

byte written[WRITERS];
byte taken[WRITERS];
bool dead[WRITERS];
bool pending[WRITERS];
bool armed;
bool bell;

#ifdef MORTAL
#define MAY_DIE if :: true -> dead[me] = true; goto end :: true -> skip fi
#else
#define MAY_DIE skip
#endif

proctype Writer(byte me) {
    byte i;
    bool was;
    for (i : 1 .. PACKETS) {
#ifdef BUG_BIT_FIRST
        was = pending[me];
        pending[me] = true;
        written[me]++;
#else
        written[me]++;          /* The stamp. */
        MAY_DIE;
        was = pending[me];
        if
        :: !was -> pending[me] = true
        :: else -> skip
        fi;
#endif
        MAY_DIE;
        if
        :: !was ->
#ifdef BUG_SILENT
            skip
#else
            if
            :: armed ->
#ifdef BUG_DISARM
                d_step { was = armed; armed = false };
                MAY_DIE;
                if
                :: was -> bell = true
                :: else -> skip
                fi
#else
                MAY_DIE;
                bell = true
#endif
            :: else -> skip
            fi
#endif
        :: else -> skip
        fi
    }
end:
    skip
}

#define READ(w) do :: taken[w] < written[w] -> taken[w]++ :: else -> break od

proctype Reader() {
    bool hot[WRITERS];
    byte w;
    bool some;
    do
    :: true ->
        /* poll(): any number of times. */
        do
        :: true ->
            for (w : 0 .. WRITERS - 1) {
                hot[w] = hot[w] || pending[w];
                if
                :: hot[w] -> READ(w); assert(taken[w] <= written[w])
                :: else -> skip
                fi
            }
        :: true -> break
        od;
        /* arm() */
#ifndef BUG_LOOK_FIRST
        armed = true;
#endif
        for (w : 0 .. WRITERS - 1) {
            if
            :: hot[w] ->
#ifdef BUG_CLEAR_LATE
                some = taken[w] < written[w];
                pending[w] = false;
#else
                pending[w] = false;
                some = taken[w] < written[w];
#endif
                hot[w] = some;
                if
                :: some -> pending[w] = true
                :: else -> skip
                fi
            :: else -> skip
            fi
        }
        some = false;
        for (w : 0 .. WRITERS - 1) {
            some = some || pending[w]
        }
#ifdef BUG_LOOK_FIRST
        armed = true;
#endif
        if
        :: some ->
            d_step { some = armed; armed = false };
            if
            :: some -> bell = true
            :: else -> skip
            fi
        :: else -> skip
        fi;
        /* wait() */
end_asleep:
        if
        :: bell -> bell = false
        fi
    od
}

/* What may be left when everything has come to rest. */
proctype Judge() {
    byte w;
    timeout;
    for (w : 0 .. WRITERS - 1) {
        assert(dead[w] || taken[w] == PACKETS)
    }
}

init {
    byte w;
    atomic {
        for (w : 0 .. WRITERS - 1) {
            run Writer(w)
        }
        run Reader();
        run Judge()
    }
}
