#!/usr/bin/env bash
# The same over a bad network: 1 % of what each side sends is lost, 1 % doubled, 1 % out of order
source "${BASH_SOURCE[0]%/*}/common.sh"

export FEROCE_FAULTS=drop=0.01,dup=0.01,reorder=0.01,seed=7
pair '#bytes|^ *65536' ib_write_bw -d feroce_lo -x 0 -s 65536 -n 1000 -F
