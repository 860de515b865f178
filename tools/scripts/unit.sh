#!/bin/bash
# unit.sh FLAGS - the tests of all packages but PROCESSES (folders), once: under the race detector where there is a C compiler, plainly elsewhere. Those of the root package read the sources, one after the other; under the detector that takes a minute instead of seconds.
# What counts things that the detector changes, such as allocations, runs plainly as well: the tests of a norace_test.go, and those that ask its constant.
set -eu
cd "$(dirname "$0")/../.."
go=${GO:-go}
tested='{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'
plain() { CGO_ENABLED=0 "$go" test -trimpath "$@"; }

# Those that take longest first: a processor would have nothing to do at the end else.
longest='/(tools/bench|cluster|store/ringstore|salt/render|serve/auth|salt/orchestrate|tools/simminion)$'
mapfile -t all < <("$go" list -f "$tested" ./... | grep -v -e "^$("$go" list .)\$" $(printf -- ' -e /%s$' ${PROCESSES:?}))
mapfile -t packages < <(printf '%s\n' "${all[@]}" | grep -E "$longest"; printf '%s\n' "${all[@]}" | grep -vE "$longest")
status=0
plain "$@" . || status=$?
if ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | "$("$go" env CC)" -x c -o /dev/null - 2>/dev/null; then
    echo "left out: the race detector (no C compiler; apt-get install gcc libc6-dev)"
    plain "$@" "${packages[@]}" || status=$?
    exit $status
fi
CGO_ENABLED=1 "$go" test -race -exec "$PWD/tools/scripts/raced.sh" "$@" "${packages[@]}" || status=$?

# counting DIR - those tests of a package
counting() {
    awk -v constant="$(grep -oP '^const \K\w+' "$1/norace_test.go")" '
        FNR == 1 { test = ""; whole = FILENAME ~ /\/norace_test\.go$/ }
        /^func / { test = $2 ~ /^Test/ ? substr($2, 1, index($2, "(") - 1) : "" }
        test != "" && (whole || constant != "" && index($0, constant)) { print test }' "$1"/*_test.go | sort -u
}
while read -r file; do
    dir=$(dirname "$file")
    tests=$(counting "$dir" | paste -sd'|')
    [ -n "$tests" ] || { echo "$file: no test of its package counts anything" && status=1; }
    plain "$@" -run "^($tests)$" "$dir" </dev/null || status=$?
done < <(find . -name norace_test.go -not -path './.build/*' | sort)
exit $status
