#!/bin/bash
# race.sh FLAGS - the tests under the race detector. Left out are the packages
# whose tests run other processes for minutes: e2e, faults, commands,
# conformance, and what only wires.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
mapfile -t packages < <("$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -v -e '/e2e$' -e '/faults$' -e '/commands$' -e '/conformance$' -e '/cmd/')
exec "$go" test -race "$@" "${packages[@]}"
