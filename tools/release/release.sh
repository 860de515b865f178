#!/bin/bash
# release.sh NFPM-VERSION [ARCH...] - a release of the checked out commit in dist/release: archives, deb and rpm
# packages, an SBOM of each program, SHA256SUMS and its signature.
# RELEASE_KEY is the path of the ssh key that signs (ssh-keygen -t ed25519); RELEASE_KEY=none leaves the signature out.
# The version comes from git (tools/scripts/version.sh), all times are that of the commit: the same commit gives the same
# bytes, which reproduce.sh shows.
set -euo pipefail
cd "$(dirname "$0")/../.."
nfpm=${1:?usage: release.sh NFPM-VERSION [ARCH...]}
shift
[ $# -gt 0 ] || set -- amd64 arm64
key=${RELEASE_KEY:-}
if [ "$key" != none ] && [ ! -r "$key" ]; then
    echo "release.sh: RELEASE_KEY is \"$key\", no readable file; give the ssh key that signs, or RELEASE_KEY=none" >&2
    exit 2
fi
changed=$(git status --porcelain | head -1)
if [ -n "$changed" ]; then
    echo "release.sh: the checkout is not the commit (${changed:3}); commit or remove what differs, nothing was built" >&2
    exit 2
fi
go=${GO:-go}
version=$(tools/scripts/version.sh)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf dist
tools/packaging/build.sh "$nfpm" "$@" >/dev/null
out=$PWD/dist/release
mkdir -p "$out"
mv dist/*.deb dist/*.rpm "$out/"
for arch; do
    name=clustermaster_${version}_linux_$arch
    root=$PWD/.build/stage/archive/$name
    rm -rf "${root%/*}"
    mkdir -p "$root"
    cp ".build/stage/$arch/clustermaster" LICENSE README.md "$root/"
    cp -r docs lb "$root/"
    rm -f "$root"/lb/*.go
    mkdir "$root/monitoring"
    cp tools/monitoring/alerts.yml tools/monitoring/alerts_test.yml tools/monitoring/dashboard.json "$root/monitoring/"
    find "$root" -type d -exec chmod 755 {} +
    find "$root" -type f -exec chmod 644 {} +
    chmod 755 "$root/clustermaster"
    for link in salt-master salt salt-key salt-run salt-cp; do ln -s clustermaster "$root/$link"; done
    tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        -C "${root%/*}" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
    CGO_ENABLED=0 "$go" run -trimpath ./tools/release "$root/clustermaster" "$version" "$SOURCE_DATE_EPOCH" >"$out/$name.cdx.json"
done
tools/release/sign.sh "$out" "$key"
ls -l "$out"
