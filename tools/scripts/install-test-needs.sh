#!/bin/bash
# install-test-needs.sh [demo] - installs what the tests use beside Go: a C compiler (for the race detector), haproxy, ip,
# gpg, sshd, slapd, prometheus, PostgreSQL, MariaDB, Redis and Python's venv from the distribution, Salt's releases into
# virtual environments. With "demo" only what the demo uses: haproxy, Python's venv and Salt's releases.
# It reports what it can't install; the tests that need it are skipped and say so.
set -u
cd "$(dirname "$0")/../.."
venvs=${CLUSTERMASTER_SALT_VENVS:-$PWD/.build/venvs}

# packages NAME... - from Debian's archive, when it has a use to try.
packages() {
    if ! command -v apt-get >/dev/null; then
        echo "left out: installing $* (no apt-get on this machine)"
        return 1
    fi
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
            echo "left out: installing $* (needs root: sudo apt-get install $*)"
            return 1
        fi
        sudo=(sudo -n)
    fi
    echo "installing $*"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >.build/apt.log 2>&1 && return 0
    # A fresh image has no package lists yet.
    "${sudo[@]}" apt-get update -q >>.build/apt.log 2>&1 &&
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >>.build/apt.log 2>&1 && return 0
    echo "left out: installing $* (apt-get failed, see .build/apt.log)"
    return 1
}

mkdir -p .build
# Debian keeps ensurepip in a package of its own.
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    packages python3 python3-venv
fi
if ! command -v haproxy >/dev/null && [ ! -x /usr/sbin/haproxy ]; then
    packages haproxy
fi
if [ "${1:-}" = demo ]; then
    tools/scripts/venvs.sh --bare "$venvs" || true
    exit 0
fi
if ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | "${CC:-gcc}" -x c -o /dev/null - 2>/dev/null; then
    packages gcc libc6-dev
fi
# Partitions of the network; without ip a proxy stands in.
if ! command -v ip >/dev/null; then
    packages iproute2
fi
# A file system of its own, for a faulty disk.
if ! command -v mkfs.ext4 >/dev/null && [ ! -x /usr/sbin/mkfs.ext4 ]; then
    packages e2fsprogs
fi
# Git remotes; ssh-keygen signs commits.
if ! command -v git >/dev/null || ! command -v ssh-keygen >/dev/null; then
    packages git openssh-client
fi
# A real server for git remotes over ssh. Debian would start one of its own.
if [ ! -x /usr/sbin/sshd ]; then
    packages openssh-server && [ "$(id -u)" -eq 0 ] && command -v systemctl >/dev/null && systemctl disable --now ssh >/dev/null 2>&1
fi
# The gpg renderer.
if ! command -v gpg >/dev/null; then
    packages gnupg
fi
# A real directory for the back end ldap of external_auth. Debian would start one of its own.
if ! command -v slapd >/dev/null && [ ! -x /usr/sbin/slapd ]; then
    packages slapd && [ "$(id -u)" -eq 0 ] && command -v systemctl >/dev/null && systemctl disable --now slapd >/dev/null 2>&1
fi
# promtool, and a real Prometheus for the queries of the dashboard. Debian would start one of its own.
if ! command -v promtool >/dev/null || ! command -v prometheus >/dev/null; then
    packages prometheus && [ "$(id -u)" -eq 0 ] && command -v systemctl >/dev/null && systemctl disable --now prometheus >/dev/null 2>&1
fi
# The page about metrics makes passwords with it.
if ! command -v htpasswd >/dev/null; then
    packages apache2-utils
fi
# Real databases for returners. Debian would start its own.
if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    packages postgresql && [ "$(id -u)" -eq 0 ] && command -v systemctl >/dev/null && systemctl disable --now postgresql >/dev/null 2>&1
fi
if ! command -v mariadb-install-db >/dev/null || [ ! -x /usr/sbin/mariadbd ]; then
    packages mariadb-server && [ "$(id -u)" -eq 0 ] && command -v systemctl >/dev/null && systemctl disable --now mariadb >/dev/null 2>&1
fi
if ! command -v redis-server >/dev/null; then
    packages redis-server && [ "$(id -u)" -eq 0 ] && command -v systemctl >/dev/null && systemctl disable --now redis-server >/dev/null 2>&1
fi
tools/scripts/venvs.sh "$venvs" || true
exit 0
