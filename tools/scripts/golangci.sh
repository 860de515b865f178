#!/bin/bash
# golangci.sh MODULE@VERSION - runs that version of golangci-lint with .golangci.yml.
set -u
cd "$(dirname "$0")/../.."
program=$(tools/scripts/gotool.sh "${1:?usage: golangci.sh MODULE@VERSION}") || { echo "$program"; exit 0; }
echo "golangci-lint run ./..."
# As vet: what that compiled is used again.
GOFLAGS="$("${GO:-go}" env GOFLAGS) -trimpath" CGO_ENABLED=0 exec "$program" run --timeout 20m ./...
