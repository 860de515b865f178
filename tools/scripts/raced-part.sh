#!/bin/bash
# raced-part.sh PART COMMAND... - runs tests with the program in bin/raced (make raced), and prints the share of its statements that masters and commands executed; the profile is .build/coverage/PART.txt.
# Whatever the race detector reports of them fails the part: each report is printed once and kept in .build/coverage/PART.races. A process ended by SIGKILL writes no coverage; it writes a race when it happens.
set -u
cd "$(dirname "$0")/../.."
go=${GO:-go}
part=${1:?usage: raced-part.sh PART COMMAND...}
shift
kept=${COVERAGE:-$PWD/.build/coverage}
mkdir -p "$kept" && rm -f "$kept/$part.txt" "$kept/$part.races" || exit
# Masters and commands of other users write there too.
work=$(mktemp -d) || exit
trap 'rm -rf "$work"' EXIT
mkdir "$work/covered" "$work/races" && chmod 755 "$work" && chmod 1777 "$work"/* || exit

export CLUSTERMASTER_BIN=${CLUSTERMASTER_BIN:-$PWD/bin/raced}
export GOCOVERDIR=$work/covered
# Without the second option each command would sleep for a second before it ends. The report fails the part, so a race changes no exit code.
export GORACE="log_path=$work/races/race atexit_sleep_ms=0 exitcode=0"
status=0
"$@" || status=$?

# The same race in many processes is one report: addresses and numbers of goroutines don't count. Other words of the race runtime are kept too. A race of Raft 1.8.0 is named, but fails nothing: it reads a peer's id without the lock under which a new address of the peer is set; the id stays the same (cluster/norace_test.go).
if [ -n "$(find "$work/races" -type f -size +0)" ]; then
    find "$work/races" -type f -size +0 -exec cat {} + | awk -v excepted="$work/excepted" '
        function rafts() {
            return block ~ /[Rr]ead at [^\n]*\n *github.com\/hashicorp\/raft\.updateLastAppended\(/ &&
                block ~ /[Ww]rite at [^\n]*\n *github.com\/hashicorp\/raft\.\(\*Raft\)\.startStopReplication\(/
        }
        function ended() {
            if (rafts()) { n++; block = ""; return }
            key = block
            gsub(/0x[0-9a-f]+|[Gg]oroutine [0-9]+/, "", key)
            if (block != "" && block !~ /^Found [0-9]+ data race/ && !seen[key]++) printf "==================\n%s==================\n", block
            block = ""
        }
        /^==================$/ { ended(); next }
        { block = block $0 "\n" }
        END { ended(); if (n) print n >excepted }' | tee "$kept/$part.races"
    [ ! -e "$work/excepted" ] || echo "excepted: $(cat "$work/excepted") reports of Raft's race on the id of a peer whose address changes"
    if [ -s "$kept/$part.races" ]; then
        echo "failed: $(grep -c 'WARNING: DATA RACE' "$kept/$part.races") data races in masters or commands (0: other words of the race runtime), see above or $part.races beside the profile"
        status=1
    fi
fi

if [ -z "$(find "$work/covered" -name 'covcounters.*' -print -quit)" ]; then
    echo "failed: no process wrote what it covered"
    exit 1
fi
"$go" tool covdata textfmt -i="$work/covered" -o="$kept/$part.txt" || exit
awk 'NR > 1 { all += $2; if ($3 > 0) ran += $2 } END { printf "coverage of the program: %.1f %%\n", 100 * ran / all }' "$kept/$part.txt"
exit "$status"
