#!/usr/bin/env bash
# Unmodified programs of Debian: ibv_rc_pingpong and ib_write_bw, two processes each, over UDP
source "${BASH_SOURCE[0]%/*}/common.sh"

pair 'bytes in|iters in' ibv_rc_pingpong -d feroce_lo -g 0 -n 1000
pair '#bytes|^ *65536' ib_write_bw -d feroce_lo -x 0 -s 65536 -n 5000 -F
