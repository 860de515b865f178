#!/bin/bash
# sign.sh FOLDER KEY - writes SHA256SUMS of all files in a folder, and signs it with an ssh key; KEY none leaves the
# signature out.
set -euo pipefail
cd "${1:?usage: sign.sh FOLDER KEY}"
key=${2:?usage: sign.sh FOLDER KEY}
rm -f SHA256SUMS SHA256SUMS.sig
names=$(find . -maxdepth 1 -type f -printf '%f\n' | LC_ALL=C sort) # before SHA256SUMS is one of them
xargs -d '\n' sha256sum <<<"$names" >SHA256SUMS
if [ "$key" = none ]; then
    echo "not signed: RELEASE_KEY=none"
    exit 0
fi
ssh-keygen -q -Y sign -n clustermaster-release -f "$key" SHA256SUMS
