#!/bin/bash
# repeat.sh RUNS LOAD - runs of `make test`, one after the other, beside the shell command LOAD ("" for none), with -cpu 1, 2 and 4 in turns and no cached results. Each run adds a row to the table of docs/testing.md, a failed one too; the turns continue those of the table. The outputs stay in .build/repeat.
set -eu
cd "$(dirname "$0")/../.."
runs=${1:?how many runs} load=${2:-}
((runs > 0)) || { echo "RUNS=$runs: how many runs, at least 1" >&2; exit 2; }
page=docs/testing.md end='<!-- end of repeated runs -->' kept=.build/repeat cpus=(1 2 4)
grep -qxF "$end" $page || { echo "$page has no line $end" >&2; exit 2; }
mkdir -p $kept

if [ -n "$load" ]; then
    command -v "${load%% *}" >/dev/null || { echo "${load%% *} is not installed; it is the load" >&2; exit 2; }
    setsid bash -c "while $load; do :; done" >$kept/load.log 2>&1 &
    beside=$!
    trap 'kill -- -$beside 2>/dev/null || true' EXIT
fi
status=0
for ((n = 1; n <= runs; n++)); do
    before=$(sed -n "/^<!-- repeated runs -->\$/,/^$end\$/p" $page | grep -c '^| 20' || true)
    cpu=${cpus[before % ${#cpus[@]}]}
    log=$kept/$(date +%Y%m%d-%H%M%S).log
    commit=$(git rev-parse --short=8 HEAD)$(git diff --quiet HEAD -- ':!docs' || echo +)
    began=$(date +%s)
    echo "run $n of $runs: -cpu $cpu, ${load:-no load}; its output goes to $log"
    result=passed
    $MAKE --no-print-directory test ALSO="-count=1 -cpu $cpu" >"$log" 2>&1 </dev/null || result=failed status=1
    [ -z "$load" ] || kill -0 $beside 2>/dev/null || { result="failed: the load ended" status=1; }
    sum=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1 || true)
    row="| $(date -d @"$began" +%F) | $commit | $cpu | ${load:-none} | $((($(date +%s) - began + 30) / 60)) | $result | ${sum:-no sum} |"
    sed -i "s#^$end\$#${row//[#&\\]/\\&}\n&#" $page
    echo "$row"
done
exit $status
