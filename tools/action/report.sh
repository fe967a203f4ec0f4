#!/usr/bin/env bash
# What tools/action/report does: gathers what is known of a job that failed into a folder, and says
# the reasons in the job's summary. It never fails a job itself: that has failed already.
set -euo pipefail
limit=$((100 * 1024 * 1024)) # Bytes of captures; an artifact should be quick to download.
shown=60000                  # Bytes of reasons in the summary, which has 1 MiB for the whole job.
captures=${FEROCE_CAPTURES:-}
if [[ -n ${RUNNER_TEMP:-} ]]; then
    report=$RUNNER_TEMP/feroce-report
    rm -rf "$report"
    mkdir -p "$report"
else
    report=$(mktemp -d) # A fixed name would be another user's to take.
fi

# Reasons of processes that have ended are kept too. Not captured: that would be one file more.
explain() {
    if ! command -v feroce >/dev/null; then
        echo "Feroce was not set up in this job."
        return
    fi
    env -u FEROCE_PCAP feroce explain 2>&1 || true
}

# The youngest first: these are of the step that failed.
keep_captures() {
    local file size sum=0
    [[ -d $captures ]] || return 0
    mkdir "$report/captures"
    find "$captures" -name '*.pcapng*' -type f -printf '%T@ %p\n' | sort -rn | cut -d' ' -f2- |
        while read -r file; do
            size=$(stat -c %s "$file")
            sum=$((sum + size))
            if [[ $sum -gt $limit ]]; then
                echo "$(basename "$file"): left out, $size bytes; 100 MiB of captures are kept" \
                    >>"$report/left-out.txt"
            else
                cp "$file" "$report/captures/"
            fi
        done
}

explain >"$report/explain.txt"
keep_captures
{
    echo "### feroce explain"
    echo '```text'
    head -c "$shown" "$report/explain.txt" | sed 's/```/---/g'
    if [[ $(stat -c %s "$report/explain.txt") -gt $shown ]]; then
        printf '\n%s\n' "... the rest is in explain.txt of the artifact"
    fi
    echo '```'
} >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
cat "$report/explain.txt"
[[ -z ${GITHUB_OUTPUT:-} ]] || echo "path=$report" >>"$GITHUB_OUTPUT"
