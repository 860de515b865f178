#!/bin/bash
# staticcheck.sh MODULE@VERSION - runs that version, built into .build/bin once.
set -u
cd "$(dirname "$0")/.."
module=${1:?usage: staticcheck.sh MODULE@VERSION}
go=${GO:-go}
bin=$PWD/.build/bin
mkdir -p "$bin"
program=$bin/staticcheck
if [ "$(cat "$program.version" 2>/dev/null)" != "$module $("$go" env GOVERSION)" ]; then
    if ! GOBIN=$bin "$go" install "$module" >"$PWD/.build/staticcheck.log" 2>&1; then
        echo "left out: staticcheck (go install $module failed, see .build/staticcheck.log)"
        exit 0
    fi
    echo "$module $("$go" env GOVERSION)" >"$program.version"
fi
echo "staticcheck ./..."
# As vet: what that compiled is used again.
GOFLAGS="$("$go" env GOFLAGS) -trimpath" CGO_ENABLED=0 exec "$program" ./...
