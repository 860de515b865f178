#!/bin/bash
# exporter.sh DIR - installs prometheus-salt-exporter into DIR/exporter, beside the Salt 3008.3 in DIR, whose library it uses.
set -u
dir=${1:?usage: exporter.sh DIR}
venv=$dir/exporter salt=$dir/salt-3008.3/bin/python log=$dir/exporter.log
packages=(prometheus-salt-exporter==0.1.4 prometheus-client==0.23.1 Twisted==25.5.0)
[ "$(cat "$venv/packages" 2>/dev/null)" != "${packages[*]}" ] || exit 0
rm -rf "$venv"
if "$salt" -m venv "$venv" >"$log" 2>&1 &&
    "$salt" -c 'import os, salt; print(os.path.dirname(os.path.dirname(salt.__file__)))' >"$(echo "$venv"/lib/python3*/site-packages)/salt.pth" 2>>"$log" &&
    "$venv/bin/pip" install -q --disable-pip-version-check "${packages[@]}" >>"$log" 2>&1; then
    echo "${packages[*]}" >"$venv/packages"
else
    echo "left out: prometheus-salt-exporter (pip install failed, see $log)"
    exit 1
fi
