#!/bin/bash
# gotool.sh MODULE@VERSION - builds that version of a tool into .build/bin once, and prints the program's path; if it can't, what is left out.
set -u
cd "$(dirname "$0")/../.."
module=${1:?usage: gotool.sh MODULE@VERSION}
go=${GO:-go}
bin=$PWD/.build/bin
name=$(basename "${module%@*}")
program=$bin/$name
mkdir -p "$bin"
if [ "$(cat "$program.version" 2>/dev/null)" != "$module $("$go" env GOVERSION)" ]; then
    if ! GOBIN=$bin "$go" install "$module" >"$PWD/.build/$name.log" 2>&1; then
        echo "left out: $name (go install $module failed, see .build/$name.log)"
        exit 1
    fi
    echo "$module $("$go" env GOVERSION)" >"$program.version"
fi
echo "$program"
