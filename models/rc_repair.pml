/* Selective repeat: the RC window when a responder may keep what follows a gap, and a requester may
 * send only the missing packet again (ADR 34). The channel is that of rc_window.pml: it loses,
 * duplicates and reorders. All operations are WRITEs of one packet; PSNs are few.
 *
 * Either end is of either kind, in all four combinations. A responder that keeps executes what it
 * kept when the gap is closed, acknowledges all of it, and names the next gap at once if the packet
 * that closed this one asked. A requester that repairs finds out what its peer does from the first
 * answer to a repair, with nothing new behind it; one that goes back is not repaired for again.
 *
 * Invariants (as in rc_window.pml):
 *   exactly_once   an operation is applied once and in order;      assert(op == applied)
 *   true_ack       an acknowledgement is for what it seems to be;  assert(op == una + ahead)
 *   heals          after the last fault one retry is enough;       assert(retries <= FAULTS + 1)
 *   no deadlock    Spin's own check for invalid end states
 *
 * -DBUG_WIDE_HOLD, -DBUG_KEEP_LAST, -DBUG_ACK_HELD break one rule each;
 * models/check.py demands that Spin finds every one of them.
 */

#define PSNS 10         /* More than three windows: see rc_window.pml. */
#define HALF 5
#define WINDOW 3
#ifndef OPS
#define OPS 11
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define CAPACITY 4

#ifdef BUG_WIDE_HOLD
#define HOLD (PSNS - 2) /* A duplicate from behind is taken for one from ahead. */
#else
#define HOLD (WINDOW - 1)
#endif

#define ACK 0
#define NAK 1
#define NONE 255

#define UNKNOWN 0
#define KEEPS 1
#define GOES_BACK 2

chan requests = [CAPACITY] of { bit, byte, byte };      /* asks, psn, op */
chan responses = [CAPACITY] of { bit, byte, byte };     /* kind, psn, op */

byte faults = FAULTS;
byte applied;                   /* Operations applied so far: the truth. */

bit late_asks; byte late_psn; byte late_op = NONE;      /* Set aside by the adversary. */
bit late_kind; byte late_answer_psn; byte late_answer_op = NONE;

#define idle (len(requests) == 0 && len(responses) == 0 \
              && late_op == NONE && late_answer_op == NONE)

inline send_request(a, o) {
    if
    :: requests!a, o % PSNS, o
    :: faults > 0 -> faults--                                          /* Lost. */
    :: faults > 0 && len(requests) <= CAPACITY - 2 ->
        faults--; requests!a, o % PSNS, o; requests!a, o % PSNS, o     /* Duplicated. */
    fi
}

inline send_response(k, p, o) {
    if
    :: responses!k, p, o
    :: faults > 0 -> faults--
    :: faults > 0 && len(responses) <= CAPACITY - 2 ->
        faults--; responses!k, p, o; responses!k, p, o
    fi
}

active proctype requester() {
    byte una;                   /* Oldest operation not acknowledged. */
    byte nxt;                   /* Next to transmit; below top while going back. */
    byte top;                   /* Next never transmitted. */
    byte retries;
    bool recovering;            /* Gone back since the last progress: further NAKs are echoes. */
    bool due;                   /* A repair of una is to be sent... */
    bool repaired;              /* ...or was. */
    byte peer = UNKNOWN;
    bit kind; byte psn; byte op; byte ahead;

    if
    :: peer = UNKNOWN
    :: peer = GOES_BACK         /* A requester that does not repair. */
    fi;
    do
    :: atomic { una == OPS -> break }

    :: atomic { !due && !(repaired && peer == UNKNOWN) && nxt == top && top < OPS &&
                top - una < WINDOW && nfull(requests) ->
        send_request(0, nxt); nxt++; top++ }

    :: atomic { !due && nxt < top && nfull(requests) -> send_request(0, nxt); nxt++ }

    :: atomic { due && nfull(requests) -> send_request(1, una); due = false; repaired = true }

    :: atomic { len(responses) > 0 || late_answer_op != NONE ->
        if
        :: late_answer_op == NONE -> responses?kind, psn, op
        :: late_answer_op != NONE ->
            kind = late_kind; psn = late_answer_psn; op = late_answer_op;
            late_kind = 0; late_answer_psn = 0; late_answer_op = NONE
        :: late_answer_op == NONE && len(responses) > 1 && faults > 0 ->
            faults--;
            responses?late_kind, late_answer_psn, late_answer_op;
            responses?kind, psn, op
        fi;
        ahead = (psn + PSNS - (una % PSNS)) % PSNS;
        if
        :: ahead < top - una && kind == ACK ->
            assert(op == una + ahead);                                 /* true_ack */
            if
            :: repaired && ahead > 0 -> peer = KEEPS
            :: repaired && ahead == 0 && una + 1 < nxt ->
                peer = GOES_BACK; nxt = una + 1
            :: else
            fi;
            una = una + ahead + 1;
            retries = 0; recovering = false; due = false; repaired = false
        :: ahead < top - una && kind == NAK ->
            assert(op == una + ahead);                                 /* true_ack */
            if
            :: ahead > 0 ->
                if
                :: repaired && ahead > 1 -> peer = KEEPS
                :: else
                fi;
                una = una + ahead;
                retries = 0; recovering = false; due = false; repaired = false
            :: else
            fi;
            if
            :: una < nxt && !due && !repaired && !recovering ->
                if
                :: peer == GOES_BACK -> nxt = una; recovering = true
                :: else -> due = true
                fi
            :: else
            fi
        :: else                                                        /* Stale. */
        fi;
        if
        :: nxt < una -> nxt = una
        :: else
        fi;
        kind = 0; psn = 0; op = 0; ahead = 0 }

    :: atomic { una < top && nxt == top && !due && idle ->             /* The timer. */
        retries++;
        assert(retries <= FAULTS + 1);                                 /* heals */
        nxt = una; recovering = false; repaired = false }

    :: atomic { una < nxt && !idle && faults > 0 ->                    /* The timer, too early. */
        faults--; nxt = una; recovering = false; repaired = false; due = false }
    od;
    assert(applied == OPS)                                             /* exactly_once */
}

inline apply(o) {
    assert(o == applied);                                              /* exactly_once */
    applied++;
    expected = (expected + 1) % PSNS
}

active proctype responder() {
    byte expected;              /* PSN of the next request. */
    bool nak_sent;              /* A gap is refused once. */
    bool keeps;
    byte held[PSNS] = NONE;     /* By PSN: the operation kept under it. */
    byte count;
    bit asks; byte psn; byte op; byte ahead; bool ran;

    if
    :: keeps = true
    :: keeps = false
    fi;
end:
    do
    :: atomic { (len(requests) > 0 || late_op != NONE) && nfull(responses) ->
        if
        :: late_op == NONE -> requests?asks, psn, op
        :: late_op != NONE ->
            asks = late_asks; psn = late_psn; op = late_op;
            late_asks = 0; late_psn = 0; late_op = NONE
        :: late_op == NONE && len(requests) > 1 && faults > 0 ->
            faults--;
            requests?late_asks, late_psn, late_op;
            requests?asks, psn, op
        fi;
        ahead = (psn + PSNS - expected) % PSNS;
        if
        :: ahead == 0 ->
            apply(op);
            nak_sent = false;
            do
            :: held[expected] != NONE ->
                psn = expected; op = held[psn]; ran = true;
                apply(op);
                held[psn] = NONE; count--
            :: else -> break
            od;
            if
            :: count > 0 && asks ->
                nak_sent = true; send_response(NAK, expected, applied)
            :: else ->
                if
                :: send_response(ACK, (expected + PSNS - 1) % PSNS, applied - 1)
                :: !asks && !ran && len(requests) > 0 -> skip          /* Coalesced. */
                fi
            fi
        :: ahead > 0 && (ahead < HALF || ahead <= HOLD && keeps) ->
            if
            :: keeps && ahead <= HOLD && !(nak_sent && count == 0) ->
#ifdef BUG_KEEP_LAST
                ahead = (psn + 1) % PSNS;       /* Under the next number. */
                psn = ahead;
#endif
                if
                :: held[psn] == NONE -> held[psn] = op; count++
                :: else
                fi;
            :: else
            fi;
            if
#ifdef BUG_ACK_HELD
            :: keeps -> nak_sent = true; send_response(ACK, psn, applied - 1)
#endif
            :: !nak_sent -> nak_sent = true; send_response(NAK, expected, applied)
            :: nak_sent && asks && count > 0 && applied > 0 ->         /* The last one again. */
                send_response(ACK, (expected + PSNS - 1) % PSNS, applied - 1)
            :: nak_sent && !(asks && count > 0 && applied > 0)
            fi
        :: else ->
            assert(op < applied);
            send_response(ACK, (expected + PSNS - 1) % PSNS, applied - 1)
        fi;
        asks = 0; psn = 0; op = 0; ahead = 0; ran = false }
    od
}
