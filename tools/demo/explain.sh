#!/usr/bin/env bash
# A write with a wrong key: what verbs tells the program, and what feroce explain tells you
source "${BASH_SOURCE[0]%/*}/common.sh"

"$FEROCE" run -- "${FEROCE%/*}/bad_access" &
wait $! || fail "the wrong key was not refused"
echo "feroce explain $!"
"$FEROCE" explain $!
