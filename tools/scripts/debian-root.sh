#!/bin/bash
# debian-root.sh DIR - makes a minimal Debian root in DIR, from where apt gets its packages, and keeps one that is complete.
# Needs root.
set -euo pipefail
dir=$1
[ -f "$dir.done" ] && exit 0
command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap >/dev/null
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Origin: Debian' 2>/dev/null | head -1 || true)
rm -rf "$dir"
mkdir -p "$(dirname "$dir")"
debootstrap --variant=minbase bookworm "$dir" ${mirror:+"$mirror"} >"$dir.log"
touch "$dir.done"
