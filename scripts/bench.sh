#!/bin/bash
# Prints figures: Go's benchmarks beside the code, then `clustermaster bench` on
# one master and on three. Nothing here passes or fails.
set -u
cd "$(dirname "$0")/.."
go=${GO:-go}
"$go" test -run '^$' -bench . -benchmem -timeout 30m ./... | grep -v -e 'no test files' -e '^ok .*\[no tests'
bin/clustermaster bench "$@"
