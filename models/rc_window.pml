/* The RC window: go-back-N over a channel that loses, duplicates and reorders, with a 3-bit PSN.
 *
 * One requester, one responder. Every operation is one packet, a WRITE or an ATOMIC (fetch-add of
 * 1 on `memory`); the order of kinds is left open, so all of them are tried. The responder
 * acknowledges (and may coalesce), refuses a gap once with a NAK, re-acknowledges duplicate
 * writes and answers duplicate atomics from a replay buffer of REPLAY results. The requester
 * keeps at most ATOMICS atomics and WINDOW packets outstanding, goes back on a NAK, on a response
 * that overtook a missing atomic result, and on a timeout.
 *
 * The adversary has FAULTS moves: lose, duplicate, deliver after the next one, time out early.
 * Fields named `op` are ghosts: the true, never wrapping number, read by assertions only.
 *
 * Invariants (same names in the checkers of the simulator):
 *   exactly_once   an operation is applied once and in order;      assert(op == applied)
 *   true_result    an atomic returns what it found;                assert(value == want)
 *   true_ack       an acknowledgement is for what it seems to be;  assert(op == una + ahead)
 *   heals          after the last fault one retry is enough;       assert(retries <= FAULTS + 1)
 *   no deadlock    Spin's own check for invalid end states
 *   no livelock    every cycle passes a `progress` label           (run with -DNP, pan -l)
 *
 * -DBUG_SHORT_REPLAY, -DBUG_REEXECUTE, -DBUG_WIDE_WINDOW, -DBUG_IGNORE_GAP break one rule each;
 * models/check.py demands that Spin finds every one of them.
 */

#define PSNS 8
#define HALF 4

#ifndef OPS
#define OPS 9           /* More than PSNS: a stale packet could be taken for a new one. */
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define ATOMICS 2       /* max_rd_atomic of the requester, max_dest_rd_atomic of the responder. */
#define CAPACITY 3      /* Packets in flight each way. */

/* Below a third of the PSN space, not half: a replayed answer may lag the responder by one window,
 * be overtaken by the answers of a second, and must not be taken for an answer to the third. Spin
 * shows the confusion at WINDOW 3 with two faults. With 24 bits: WINDOW < 5.5 million packets. */
#ifdef BUG_WIDE_WINDOW
#define WINDOW 3
#else
#define WINDOW 2
#endif
#ifdef BUG_SHORT_REPLAY
#define REPLAY 1
#else
#define REPLAY ATOMICS
#endif

#define WRITE 0
#define ATOMIC 1

#define ACK 0
#define ATOMIC_ACK 1
#define NAK 2

#define NONE 255        /* No entry, nothing held back. */

chan requests = [CAPACITY] of { bit, byte, byte };         /* kind, psn, op */
chan responses = [CAPACITY] of { byte, byte, byte, byte }; /* kind, psn, value, op */

byte faults = FAULTS;

/* A packet set aside by the adversary; it comes out after the next one. op == NONE: empty. */
bit late_kind; byte late_psn; byte late_op = NONE;
byte late_answer; byte late_answer_psn; byte late_answer_value; byte late_answer_op = NONE;

#define idle (len(requests) == 0 && len(responses) == 0 \
              && late_op == NONE && late_answer_op == NONE)

/* Truth, for assertions. */
byte applied;           /* Operations applied so far. */
byte memory;            /* The word that atomics increment. */
byte posted_atomics;

inline send_request(k, o) {
    if
    :: requests!k, o % PSNS, o
    :: faults > 0 -> faults--                                          /* Lost. */
    :: faults > 0 && len(requests) <= CAPACITY - 2 ->
        faults--; requests!k, o % PSNS, o; requests!k, o % PSNS, o     /* Duplicated. */
    fi
}

inline send_response(k, p, v, o) {
    if
    :: responses!k, p, v, o
    :: faults > 0 -> faults--
    :: faults > 0 && len(responses) <= CAPACITY - 2 ->
        faults--; responses!k, p, v, o; responses!k, p, v, o
    fi
}

/* Completes operations una .. una+ahead-1, and una+ahead too if `last_kind` answers it. Stops at an
 * atomic whose result did not arrive: that response was lost, so go back to it. */
inline complete_to(last_kind, value) {
    stop = false;
    do
    :: stop || (ahead == 0 && last_kind == NAK) -> break
    :: else ->
        if
        :: kinds[una % PSNS] == ATOMIC && !(ahead == 0 && last_kind == ATOMIC_ACK) -> stop = true
        :: else ->
            if
            :: ahead == 0 && last_kind == ATOMIC_ACK ->
                assert(kinds[una % PSNS] == ATOMIC);
                assert(value == want[una % PSNS]);                     /* true_result */
                outstanding--
            :: else
            fi;
            kinds[una % PSNS] = WRITE; want[una % PSNS] = 0;
            una++; retries = 0; recovering = false;
            if
            :: ahead == 0 -> break
            :: else -> ahead--
            fi
        fi
    od;
    if
    :: nxt < una -> nxt = una
    :: else
    fi;
    if
    :: (stop || last_kind == NAK) && !recovering -> nxt = una; recovering = true
    :: else
    fi;
    stop = false; ahead = 0
}

active proctype requester() {
    byte una;                   /* Oldest operation not completed. */
    byte nxt;                   /* Next to transmit; below top while going back. */
    byte top;                   /* Next never transmitted. */
    byte outstanding;           /* Atomics posted and not completed. */
    byte retries;               /* Timeouts since the last progress. */
    bool recovering;            /* Gone back since the last progress: further NAKs are echoes. */
    bit kinds[PSNS];
    byte want[PSNS];            /* Result that an outstanding atomic must return. */
    bit kind; byte answer; byte psn; byte value; byte op; byte ahead; bool stop; byte before;

    do
    :: atomic { una == OPS -> break }

    :: atomic { nxt == top && top < OPS && top - una < WINDOW && nfull(requests) ->
        if
        :: kind = WRITE
        :: outstanding < ATOMICS ->
            kind = ATOMIC; outstanding++;
            want[top % PSNS] = posted_atomics; posted_atomics++
        fi;
        kinds[top % PSNS] = kind;
        send_request(kind, nxt); nxt++; top++; kind = WRITE }

    :: atomic { nxt < top && nfull(requests) ->
        send_request(kinds[nxt % PSNS], nxt); nxt++ }

    :: atomic { len(responses) > 0 || late_answer_op != NONE ->
        if
        :: late_answer_op == NONE -> responses?answer, psn, value, op
        :: late_answer_op != NONE ->
            answer = late_answer; psn = late_answer_psn; value = late_answer_value;
            op = late_answer_op;
            late_answer = 0; late_answer_psn = 0; late_answer_value = 0; late_answer_op = NONE
        :: late_answer_op == NONE && len(responses) > 1 && faults > 0 ->
            faults--;
            responses?late_answer, late_answer_psn, late_answer_value, late_answer_op;
            responses?answer, psn, value, op
        fi;
        ahead = (psn + PSNS - (una % PSNS)) % PSNS;
        before = una;
        if
        :: ahead < top - una ->
            assert(op == una + ahead);                                 /* true_ack */
            complete_to(answer, value)
        :: else                                                        /* Stale. */
        fi;
        answer = 0; psn = 0; value = 0; op = 0; ahead = 0 }
        if
        :: atomic { una != before -> before = 0 };
progress_completed: skip
        :: atomic { una == before -> before = 0 }
        fi

    :: atomic { una < top && nxt == top && idle ->                     /* The timer. */
        retries++;
        assert(retries <= FAULTS + 1);                                 /* heals */
        nxt = una; recovering = false }

    :: atomic { una < nxt && !idle && faults > 0 ->                    /* The timer, too early. */
        faults--; nxt = una; recovering = false }
    od;
    assert(applied == OPS && memory == posted_atomics)                 /* exactly_once */
}

active proctype responder() {
    byte expected;              /* PSN of the next request. */
    bool nak_sent;              /* A gap is refused once. */
    byte replay_psn[ATOMICS] = NONE;    /* Newest first; only REPLAY entries are used. */
    byte replay_value[ATOMICS];
    bit kind; byte psn; byte op; byte ahead; byte result;

end:
    do
    :: atomic { (len(requests) > 0 || late_op != NONE) && nfull(responses) ->
        if
        :: late_op == NONE -> requests?kind, psn, op
        :: late_op != NONE ->
            kind = late_kind; psn = late_psn; op = late_op;
            late_kind = 0; late_psn = 0; late_op = NONE
        :: late_op == NONE && len(requests) > 1 && faults > 0 ->
            faults--;
            requests?late_kind, late_psn, late_op;
            requests?kind, psn, op
        fi;
        ahead = (psn + PSNS - expected) % PSNS;
#ifdef BUG_IGNORE_GAP
        if
        :: ahead < HALF -> ahead = 0
        :: else
        fi;
#endif
        if
        :: ahead == 0 ->
            assert(op == applied);                                     /* exactly_once */
            applied++;
            expected = (expected + 1) % PSNS;
            nak_sent = false;
            if
            :: kind == ATOMIC ->
                result = memory;
                memory++;
#ifndef BUG_SHORT_REPLAY
                replay_psn[1] = replay_psn[0]; replay_value[1] = replay_value[0];
#endif
                replay_psn[0] = psn; replay_value[0] = result;
                send_response(ATOMIC_ACK, psn, result, op)
            :: kind == WRITE -> send_response(ACK, psn, 0, op)
            :: kind == WRITE && len(requests) > 0 -> skip              /* Coalesced. */
            fi
        :: ahead > 0 && ahead < HALF ->
            if
            :: !nak_sent -> nak_sent = true; send_response(NAK, expected, 0, applied)
            :: else
            fi
        :: ahead >= HALF ->
            assert(op < applied);
            if
            :: kind == WRITE ->
                send_response(ACK, (expected + PSNS - 1) % PSNS, 0, applied - 1)
#ifdef BUG_REEXECUTE
            :: kind == ATOMIC ->
                result = memory; memory++; send_response(ATOMIC_ACK, psn, result, op)
#else
            :: kind == ATOMIC && replay_psn[0] == psn ->
                send_response(ATOMIC_ACK, psn, replay_value[0], op)
            :: kind == ATOMIC && replay_psn[0] != psn && replay_psn[1] == psn ->
                send_response(ATOMIC_ACK, psn, replay_value[1], op)
            :: kind == ATOMIC && replay_psn[0] != psn && replay_psn[1] != psn -> skip
#endif
            fi
        fi;
        kind = 0; psn = 0; op = 0; ahead = 0; result = 0 }
    od
}
