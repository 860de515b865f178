#!/bin/bash
# bench.sh [OPTIONS] - figures: Go's benchmarks beside the code, printed; then `clustermaster bench` of our own masters,
# for docs/benchmarks.md, and of how cost grows, for docs/growth.md; tools/pages writes both. With options only those
# of `clustermaster bench` that they say, printed. Nothing here passes or fails.
set -u
cd "$(dirname "$0")/../.."
go=${GO:-go}
if [ $# -gt 0 ]; then
	exec bin/clustermaster bench "$@"
fi
"$go" test -run '^$' -bench . -benchmem -timeout 30m ./... | grep -v -e 'no test files' -e '^ok .*\[no tests'
requests=auth,return,minion_event,pillar,pillar+grains,pillar+40sls,pillar+40sls+grains,mine,mine_get,file_list,file_hash,serve_file
out=.build/figures
mkdir -p "$out"
bin/clustermaster bench --self --seconds 2 --only $requests --json "$out/self.json" &&
	bin/clustermaster bench --grow --json "$out/growth.json" &&
	"$go" run -trimpath ./tools/pages --docs docs "$out/self.json" "$out/growth.json"
