/* A channel of events (src/process/event_queue.hpp, event_counter.cpp): programs fetch events from
 * a queue whose descriptor counts, wait with poll(2) or in the call, and destroy what events are
 * about.
 *
 * A poster puts EVENTS events about each of two objects into the queue, under its lock, and writes
 * to the descriptor only if nothing is written there, an event was taken since, or a reader waits.
 * A reader looks into the queue under the lock; finds it empty, counts itself, and reads the
 * descriptor without the lock: it takes all that is counted at once. A destroyer drops what is
 * queued about object 0, whose posts have ended, and waits until what was delivered about it has
 * been acknowledged. Access to the descriptor is a step of its own, under the lock too, because
 * readers do not hold it.
 *
 * After an event a reader may have other things to do for ever, if another one is left. With
 * -DMORTAL one may also be cancelled, or jump out of a signal handler, while it waits; with -DTHIEF
 * also in the moment between the end of its read and its look, with the count in its hands: then
 * an event waits for the next post. With -DPOLLS readers wait until the descriptor is readable,
 * without reading it, and then look.
 *
 * Invariants:
 *   no_lost_wakeup  no event is queued while a reader sleeps;    assert(queued_in_all == 0 || ...)
 *   announced       -DPOLLS: what is queued is readable;               assert(counted > 0)
 *   quiet           nothing is readable where nothing is queued;       assert(counted == 0)
 *   acknowledged    an object goes when what was delivered about it has been acknowledged, and
 *                   nothing is delivered about it later;               assert(!gone[about])
 *
 * -DBUG_ONE_WRITE (a post writes only if nothing is written, also if readers wait), -DBUG_NO_REST
 * (a reader that has taken an event does not look whether more are left), -DBUG_KEEP (nor clears
 * the descriptor after the last), -DBUG_DROP (dropped events stay announced) and -DBUG_NO_WAIT (the
 * destroyer does not wait) break one rule each.
 */

#ifndef READERS
#define READERS 2
#endif
#ifndef EVENTS
#define EVENTS 2
#endif

bool locked;
byte queued[2];
byte delivered[2];
byte acknowledged[2];
bool gone[2];
byte counted;     /* The descriptor's count. */
byte written;     /* What we take for it. */
bool taken_since; /* An event, since the last write. */
byte readers;     /* That wait, or have read and not told. */
bool posted[2];   /* All about the object. */
byte living = READERS;
bool stolen;      /* A count, since the last post. */

#define queued_in_all (queued[0] + queued[1])
#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false
#define MINUS(a, b) ((a) > (b) -> (a) - (b) : 0)

inline write_one() {
    counted++;
    written++;
    taken_since = false
}

inline clear() {
    if
    :: written > 0 ->
        atomic {
            written = MINUS(written, counted);
            counted = 0
        }
    :: else -> skip
    fi
}

proctype Poster(byte about) {
    byte i;
    for (i : 1 .. EVENTS) {
        LOCK;
        queued[about]++;
        stolen = false;
        if
#ifdef BUG_ONE_WRITE
        :: written == 0 -> write_one()
#else
        :: written == 0 || taken_since || readers != 0 -> write_one()
#endif
        :: else -> skip
        fi;
        UNLOCK
    }
    posted[about] = true
}

proctype Reader() {
    byte count = 0;
    byte about;
    byte others;
    do
    :: LOCK;
        if
        :: queued_in_all > 0 ->
#ifdef POLLS
            assert(counted > 0);
#endif
            if
            :: queued[0] > 0 -> about = 0
            :: queued[1] > 0 -> about = 1
            fi;
            assert(!gone[about]);
            queued[about]--;
            delivered[about]++;
            written = MINUS(written, count);
            taken_since = true;
            if
#ifndef BUG_KEEP
            :: queued_in_all == 0 -> clear()
#endif
            :: else ->
#ifndef BUG_NO_REST
                others = readers - (count > 0 -> 1 : 0);
                if
                :: written > 0 && others == 0 -> skip
                :: else -> write_one()
                fi
#else
                skip
#endif
            fi;
            UNLOCK;
            if
            :: count > 0 -> readers--
            :: else -> skip
            fi;
            count = 0;
            acknowledged[about]++;      /* Under the lock, so in one step. */
            if
            :: atomic { living > 1 -> living--; break }
            :: true
            fi
        :: else ->
#ifdef POLLS
            assert(counted == 0);
#endif
            written = MINUS(written, count);
            UNLOCK;
#ifdef POLLS
end_polls:  counted > 0
#else
            if
            :: count == 0 -> readers++
            :: else -> skip
            fi;
end_waits:  if
            :: atomic { counted > 0 -> count = counted; counted = 0 }
#ifdef MORTAL
            :: atomic { living > 1 -> living--; break }
#endif
            fi;
#ifdef THIEF
            if
            :: atomic { living > 1 -> living--; stolen = true; break }
            :: true
            fi
#endif
#endif
        fi
    od
}

proctype Destroyer() {
    posted[0];
    LOCK;
    queued[0] = 0;
#ifndef BUG_DROP
    if
    :: queued_in_all == 0 -> clear()
    :: else -> skip
    fi;
#endif
    UNLOCK;
#ifndef BUG_NO_WAIT
    acknowledged[0] >= delivered[0];
#endif
    atomic {
        gone[0] = true;
        assert(acknowledged[0] == delivered[0])
    }
}

/* Spin's `timeout` is: nothing else can go on. */
active proctype Rest() {
    timeout;
    assert(queued_in_all == 0 || stolen);
    assert(counted == 0);
    assert(gone[0])
}

init {
    byte i;
    atomic {
        run Poster(0);
        run Poster(1);
        for (i : 1 .. READERS) {
            run Reader()
        }
        run Destroyer()
    }
}
