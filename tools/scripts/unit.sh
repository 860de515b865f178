#!/bin/bash
# unit.sh FLAGS - the tests of all packages but PROCESSES (folders), once: under the race detector where there is a C compiler, plainly elsewhere.
# Packages with a norace_test.go count what the detector changes, such as allocations, and run plainly as well.
set -eu
cd "$(dirname "$0")/../.."
go=${GO:-go}
tested='{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'
plain() { CGO_ENABLED=0 "$go" test -trimpath "$@"; }

mapfile -t packages < <("$go" list -f "$tested" ./... | grep -v $(printf -- ' -e /%s$' ${PROCESSES:?}))
if ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | "$("$go" env CC)" -x c -o /dev/null - 2>/dev/null; then
    echo "left out: the race detector (no C compiler; apt-get install gcc libc6-dev)"
    plain "$@" "${packages[@]}"
    exit
fi
mapfile -t counting < <(find . -name norace_test.go -printf '%h\n' | sort)
status=0
CGO_ENABLED=1 "$go" test -race -exec "$PWD/tools/scripts/raced.sh" "$@" "${packages[@]}" || status=$?
plain "$@" "${counting[@]}" || status=$?
exit $status
