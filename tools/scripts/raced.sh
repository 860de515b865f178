#!/bin/bash
# raced.sh PROGRAM ARGUMENTS - runs a test's program, for go test -exec. The race detector itself fails now and then in tests on fake time (golang/go issue 78156): it then runs once more, at most twice. What failed before the crash, or raced, stays a failure. A test that the crash ended counts as not run, also after t.Error: its lines look like those of t.Log.
set -u
# A check of its own, or a signal in code that is not Go's; a pointer that is nil in Go code begins with "panic:".
crash='ThreadSanitizer: CHECK failed|^SIG(SEGV|BUS): '
out=$(mktemp) || exit
trap 'rm -f "$out"' EXIT
for _ in 1 2 3; do
    code=0
    "$@" >"$out" 2>&1 || code=$?
    [ "$code" != 0 ] && grep -qE "$crash" "$out" || break
    grep -qE -e '--- FAIL: |WARNING: DATA RACE' "$out" && break
    echo "the race detector itself failed: $(grep -m1 -E "$crash" "$out")" >&2
    echo "left out: a run in which the race detector itself crashed (golang/go issue 78156)"
done
cat "$out"
exit "$code"
