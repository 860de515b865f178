#!/bin/bash
# raced-build.sh PROGRAM - builds clustermaster with the race detector and with counters of what runs; without a C compiler only with the counters.
set -eu
cd "$(dirname "$0")/../.."
go=${GO:-go}
cgo=1 race=-race
if ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | "$("$go" env CC)" -x c -o /dev/null - 2>/dev/null; then
    echo "left out: the race detector (no C compiler; apt-get install gcc libc6-dev)"
    cgo=0 race=
fi
# Uncompressing the embedded Python would take a minute with the detector, longer than requests wait.
plain=()
[ -z "$race" ] || plain=(-gcflags={compress/flate,compress/gzip,hash/crc32}=-race=false)
# The tags: users and hosts are looked up as the shipped program does.
CGO_ENABLED=$cgo exec "$go" build -trimpath $race "${plain[@]}" -cover -coverpkg=./... -tags netgo,osusergo -o "${1:?usage: raced-build.sh PROGRAM}" ./cmd/clustermaster
