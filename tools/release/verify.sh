#!/bin/bash
# verify.sh FOLDER SIGNERS - whether the files of a release are those that a signer named in SIGNERS has signed.
# A line of SIGNERS: release@example.com ssh-ed25519 AAAA... (ssh-keygen(1), ALLOWED SIGNERS).
set -euo pipefail
signers=$(realpath "${2:?usage: verify.sh FOLDER SIGNERS}")
cd "$1"
who=$(ssh-keygen -Y find-principals -s SHA256SUMS.sig -f "$signers" 2>/dev/null | head -1) || true
if [ -z "$who" ] || ! ssh-keygen -Y verify -f "$signers" -I "$who" -n clustermaster-release -s SHA256SUMS.sig <SHA256SUMS >/dev/null 2>&1; then
    echo "verify.sh: SHA256SUMS is not signed by anybody in $signers; do not use these files" >&2
    exit 1
fi
if ! sha256sum --strict --quiet -c SHA256SUMS; then
    echo "verify.sh: files differ from what $who signed; do not use them" >&2
    exit 1
fi
unsigned=$(find . -maxdepth 1 -type f -printf '%f\n' | grep -vxF -e SHA256SUMS -e SHA256SUMS.sig -f <(sed 's/^[0-9a-f]*  //' SHA256SUMS) | head -1) || true
if [ -n "$unsigned" ]; then
    echo "verify.sh: $unsigned is not in SHA256SUMS; do not use it" >&2
    exit 1
fi
echo "good: signed by $who"
