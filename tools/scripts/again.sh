#!/bin/bash
# again.sh PACKAGE PATTERN - the tests of a package that failed in make test once more, as unit.sh runs them: those of processes as they are shipped, others under the race detector, and plainly as well if the package has tests that count what the detector changes.
set -eu
cd "$(dirname "$0")/../.."
go=${GO:-go}
flags=(-json -trimpath -vet=off -count=1 -timeout 30m -run "$2" "$1")
plain() { CGO_ENABLED=0 "$go" test "${flags[@]}"; }

case $1 in
*/test/*) plain; exit ;;
esac
printf 'int main(void) { return 0; }\n' | "$("$go" env CC)" -x c -o /dev/null - 2>/dev/null || { plain; exit; }
[ ! -e "$("$go" list -f '{{.Dir}}' "$1")/norace_test.go" ] || plain
CGO_ENABLED=1 "$go" test -race -exec "$PWD/tools/scripts/raced.sh" "${flags[@]}"
