#!/bin/bash
# staticcheck.sh MODULE@VERSION - runs that version.
set -u
cd "$(dirname "$0")/../.."
program=$(tools/scripts/gotool.sh "${1:?usage: staticcheck.sh MODULE@VERSION}") || { echo "$program"; exit 0; }
echo "staticcheck ./..."
# As vet: what that compiled is used again.
GOFLAGS="$("${GO:-go}" env GOFLAGS) -trimpath" CGO_ENABLED=0 exec "$program" ./...
