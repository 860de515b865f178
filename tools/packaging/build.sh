#!/bin/bash
# build.sh NFPM-VERSION [ARCH...] - deb and rpm packages for the architectures (amd64 and arm64) in dist/.
# SOURCE_DATE_EPOCH is the time of the last commit, so that two builds of one commit give the same bytes.
set -euo pipefail
umask 022
cd "$(dirname "$0")/../.."
module=github.com/goreleaser/nfpm/v2/cmd/nfpm@${1:?usage: build.sh NFPM-VERSION [ARCH...]}
shift
[ $# -gt 0 ] || set -- amd64 arm64
go=${GO:-go}
bin=$PWD/.build/bin
if [ "$(cat "$bin/nfpm.version" 2>/dev/null)" != "$module" ]; then
    echo "installing $module"
    mkdir -p "$bin"
    GOBIN=$bin "$go" install "$module" && echo "$module" >"$bin/nfpm.version"
fi
VERSION=$(tools/scripts/version.sh)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export VERSION SOURCE_DATE_EPOCH
dist=$PWD/dist
mkdir -p "$dist"
native=$("$go" env GOARCH)
for ARCH; do
    STAGE=$PWD/.build/stage/$ARCH
    export ARCH STAGE
    rm -rf "$STAGE"
    mkdir -p "$STAGE/man"
    build() { CGO_ENABLED=0 GOARCH=$1 "$go" build -trimpath -buildvcs=false -ldflags "-s -w -X main.Version=$VERSION" -o "$2" ./cmd/clustermaster; }
    build "$ARCH" "$STAGE/clustermaster"
    program=$STAGE/clustermaster
    if [ "$ARCH" != "$native" ]; then # manuals and completions are the same on all
        program=$PWD/.build/stage/native
        build "$native" "$program"
    fi
    "$program" manuals "$STAGE/man"
    gzip -9n "$STAGE/man/"*.1
    for shell in bash zsh fish; do
        "$program" completion $shell >"$STAGE/completion.$shell"
    done
    # Packages keep modes and times of change: those of the program would be this build's, those of the rest this checkout's.
    cp -r --parents LICENSE README.md docs lb tools/packaging tools/monitoring "$STAGE"
    find "$STAGE" -type d -exec chmod 755 {} +
    find "$STAGE" -type f -perm -u+x -exec chmod 755 {} +
    find "$STAGE" -type f ! -perm -u+x -exec chmod 644 {} +
    find "$STAGE" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    for form in deb rpm; do
        (cd "$STAGE" && "$bin/nfpm" package -f tools/packaging/nfpm.yaml -p $form -t "$dist/")
    done
done
ls -l dist
