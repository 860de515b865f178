#!/bin/bash
# venvs.sh [--bare] DIR [RELEASE...] - puts Salt releases, if none is named those
# that we serve, into DIR/salt-<release>, for tests and the demo. Keeps those that
# are installed. With --bare nothing else is installed, without it also libraries
# for tests. Exit code 1 if a release is missing at the end.
set -u
bare=
if [ "${1:-}" = --bare ]; then
    bare=yes
    shift
fi
dir=${1:?usage: venvs.sh [--bare] DIR [RELEASE...]}
shift
[ $# -gt 0 ] || set -- 3006.28 3007.15 3008.3
mkdir -p "$dir"

# A Python that Salt runs on. Salt 3006 and 3007 import modules that Python 3.13
# no longer has.
python=
for p in python3.11 python3.12 python3.10 python3; do
    if command -v "$p" >/dev/null && "$p" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
        python=$p
        break
    fi
done

# install RELEASE - exit code 1 if it can't be had
install() {
    local release=$1 venv=$dir/salt-$1 log=$dir/salt-$1.log
    if [ -x "$venv/bin/salt-minion" ] && "$venv/bin/python" -c 'import salt.minion' 2>/dev/null; then
        return 0
    fi
    if [ -z "$python" ]; then
        echo "left out: salt $release (no Python 3.9 to 3.12; apt-get install python3 python3-venv)"
        return 1
    fi
    echo "installing salt $release into $venv"
    rm -rf "$venv"
    if ! "$python" -m venv "$venv" >"$log" 2>&1; then
        rm -rf "$venv"
        echo "left out: salt $release (python -m venv failed, see $log; apt-get install python3-venv)"
        return 1
    fi
    "$venv/bin/pip" install -q --disable-pip-version-check "salt==$release" >>"$log" 2>&1
    # Early releases forget to name what they need: it is what 3006.28 needs.
    if [ -x "$dir/salt-3006.28/bin/pip" ] && ! "$venv/bin/python" -c 'import salt.minion' >>"$log" 2>&1; then
        "$dir/salt-3006.28/bin/pip" freeze | grep -v '^salt==' >"$venv/needs.txt"
        "$venv/bin/pip" install -q --disable-pip-version-check -r "$venv/needs.txt" >>"$log" 2>&1
    fi
    if ! "$venv/bin/python" -c 'import salt.minion' >>"$log" 2>&1; then
        echo "left out: salt $release (pip install failed, see $log)"
        rm -rf "$venv"
        return 1
    fi
}

# All at once: each waits for the network, then for one processor.
pids=()
for release; do
    install "$release" &
    pids+=($!)
done
missing=0
for pid in "${pids[@]}"; do
    wait "$pid" || missing=1
done
[ -n "$bare" ] && exit $missing
# library RELEASE MODULE NAME==VERSION - for a returner that tests compare with Salt's own
library() {
    local venv=$dir/salt-$1
    if [ -x "$venv/bin/pip" ] && ! "$venv/bin/python" -c "import $2" 2>/dev/null; then
        "$venv/bin/pip" install -q --disable-pip-version-check "$3" >>"$venv.log" 2>&1 ||
            echo "left out: $2 for salt $1 (pip install failed, see $venv.log)"
    fi
}
library 3008.3 psycopg2 psycopg2-binary==2.9.13
# 3008 has no returners mysql and redis.
library 3007.15 pymysql PyMySQL==1.1.2
library 3007.15 redis redis==6.4.0
# Packages of Salt's ecosystem, which tests load beside each release.
if [ ! -d "$dir/saltext/consul" ] && [ -x "$dir/salt-3008.3/bin/pip" ]; then
    "$dir/salt-3008.3/bin/pip" install -q --disable-pip-version-check --no-deps --target "$dir/saltext" \
        saltext.vault==1.8.0 saltext.consul==1.1.0 python-consul==1.1.0 six==1.17.0 >"$dir/saltext.log" 2>&1 ||
        echo "left out: saltext packages (pip install failed, see $dir/saltext.log)"
fi
# The client of salt-api, without Salt beside it: with Salt it prints through Salt's outputters.
if [ -n "$python" ] && [ ! -x "$dir/pepper/bin/pepper" ]; then
    if ! { "$python" -m venv "$dir/pepper" &&
        "$dir/pepper/bin/pip" install -q --disable-pip-version-check 'setuptools<81' salt-pepper==0.7.6; } >"$dir/pepper.log" 2>&1; then
        rm -rf "$dir/pepper"
        echo "left out: pepper (pip install failed, see $dir/pepper.log)"
    fi
fi
exit $missing
