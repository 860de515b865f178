#!/bin/bash
# version.sh - the version of this checkout: the tag v1.2.3 of its commit as 1.2.3, else the last release with
# the number of commits since and the commit, as in 0.1.0~dev42.g1a2b3c4.
set -eu
cd "$(dirname "$0")/../.."
if tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null); then
    echo "${tag#v}"
elif tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
    echo "${tag#v}+$(git rev-list --count "$tag"..).g$(git rev-parse --short=7 HEAD)"
else
    echo "0.1.0~dev$(git rev-list --count HEAD).g$(git rev-parse --short=7 HEAD)"
fi
