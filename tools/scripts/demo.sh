#!/bin/bash
# The demo: three masters, a balancer and minions on loopback addresses. Real
# HAProxy and real minions where they can be had, else the built-in balancer and
# simulated minions of `clustermaster dev`. Ctrl-C stops all of it.
set -u
cd "$(dirname "$0")/../.."
venvs=${CLUSTERMASTER_SALT_VENVS:-$PWD/.build/venvs}
tools/scripts/install-test-needs.sh demo

flags=()
for p in haproxy /usr/sbin/haproxy; do
    if command -v "$p" >/dev/null; then
        flags+=(--haproxy "$(command -v "$p")" --haproxy-config lb/haproxy.cfg)
        break
    fi
done
for release in 3006.28 3007.15 3008.3; do
    [ -x "$venvs/salt-$release/bin/salt-minion" ] || venvs=
done
[ -n "$venvs" ] && flags+=(--venvs "$venvs")
exec bin/clustermaster dev "${flags[@]}" "$@"
