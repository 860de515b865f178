#!/bin/bash
# reproduce.sh NFPM-VERSION [ARCH...] - builds the checked out commit twice and compares the bytes: in clones at two
# paths of different length, the second with later times of the files and another umask. With FRESH=1 the second also
# has an empty build cache, so that every package is compiled again: that takes minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
nfpm=${1:?usage: reproduce.sh NFPM-VERSION [ARCH...]}
shift
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
one=$work/one two=$work/another/place/two
commit=$(git rev-parse --short HEAD)
for to in "$one" "$two"; do git clone -q --no-hardlinks . "$to"; done
git tag --points-at HEAD | while read -r tag; do for to in "$one" "$two"; do git -C "$to" tag -f "$tag" >/dev/null; done; done
mkdir -p "$one/.build" "$two/.build"
[ -d .build/bin ] && cp -r .build/bin "$one/.build/"
find "$two" -path "$two/.git" -prune -o -type f -exec touch -d '+1 day' {} +
echo "first build"
(umask 022; cd "$one"; RELEASE_KEY=none tools/release/release.sh "$nfpm" "$@" >/dev/null)
# The packager is not what is compared.
mkdir -p "$two/.build/bin"
cp -r "$one/.build/bin/." "$two/.build/bin"
echo "second build"
[ -z "${FRESH:-}" ] || export GOCACHE=$work/cache
(umask 027; cd "$two"; RELEASE_KEY=none tools/release/release.sh "$nfpm" "$@" >/dev/null)
if ! diff "$one/dist/release/SHA256SUMS" "$two/dist/release/SHA256SUMS"; then
    echo "reproduce.sh: two builds of $commit differ in the files above" >&2
    exit 1
fi
echo "equal: $(wc -l <"$one/dist/release/SHA256SUMS") files of two builds of $commit"
cat "$one/dist/release/SHA256SUMS"
