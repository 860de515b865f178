#!/bin/bash
# raced.sh PROGRAM ARGUMENTS - runs a test's program, for go test -exec. The race detector itself fails now and then in tests on fake time (golang/go issue 78156): it then runs once more, at most twice.
set -u
out=$(mktemp) || exit
trap 'rm -f "$out"' EXIT
for _ in 1 2 3; do
    code=0
    "$@" >"$out" 2>&1 || code=$?
    [ "$code" != 0 ] && grep -q 'ThreadSanitizer: CHECK failed' "$out" || break
    echo "the race detector itself failed: $(grep -m1 'ThreadSanitizer: CHECK failed' "$out")" >&2
done
cat "$out"
exit "$code"
