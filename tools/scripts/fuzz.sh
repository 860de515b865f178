#!/bin/bash
# fuzz.sh TIME [PACKAGE...] - runs every fuzz target for that long (60s), one after the other. Inputs that are of interest are kept in .build/fuzz
# for the next run, those that fail in the package's testdata/fuzz, where plain tests run them from then on. Names what failed at the end.
# FUZZ_PARALLEL is the number of worker processes, by default one per core.
set -u
cd "$(dirname "$0")/../.."
time=${1:?usage: fuzz.sh TIME [PACKAGE...]}
shift
go=${GO:-go}
cache=$PWD/.build/fuzz
mkdir -p "$cache"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=() ran=0
while read -r package target; do
    kept=$cache/${package#./}
    mkdir -p "$kept"
    began=$SECONDS
    if CGO_ENABLED=0 "$go" test -trimpath -vet=off -run '^$' -fuzz "^$target\$" -fuzzminimizetime 2s -fuzztime "$time" ${FUZZ_PARALLEL:+-parallel "$FUZZ_PARALLEL"} "$package" -args -test.fuzzcachedir="$kept" >"$log" 2>&1; then
        echo "ok      $package $target ($((SECONDS - began)) s)"
    else
        echo "FAILED  $package $target"
        sed 's/^/    /' "$log"
        failed+=("$package $target")
    fi
    ran=$((ran + 1))
done < <(grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' ${@:-.} | sed -E 's,^(\./)?(.*)/[^/]*:func (.*)$,./\2 \3,' | sort)
echo "$ran fuzz targets, ${#failed[@]} failed${failed:+:}"
[ ${#failed[@]} = 0 ] || printf '    %s\n' "${failed[@]}"
[ $ran -gt 0 ] && [ ${#failed[@]} = 0 ]
