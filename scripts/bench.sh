#!/bin/bash
# bench.sh [OPTIONS] - prints figures: Go's benchmarks beside the code, then `clustermaster bench`: of our own masters, one
# and three, and how a cluster grows, unless options say otherwise. Nothing here passes or fails.
set -u
cd "$(dirname "$0")/.."
go=${GO:-go}
"$go" test -run '^$' -bench . -benchmem -timeout 30m ./... | grep -v -e 'no test files' -e '^ok .*\[no tests'
if [ $# -gt 0 ]; then
	bin/clustermaster bench "$@"
	exit
fi
bin/clustermaster bench --self && bin/clustermaster bench --grow
