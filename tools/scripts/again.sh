#!/bin/bash
# again.sh PACKAGE PATTERN - the tests of a package that failed in make test once more: those of processes as they are shipped, others under the race detector.
set -eu
cd "$(dirname "$0")/../.."
go=${GO:-go}
race=() cgo=0
case $1 in
*/test/*) ;;
*) printf 'int main(void) { return 0; }\n' | "$("$go" env CC)" -x c -o /dev/null - 2>/dev/null && race=(-race -exec "$PWD/tools/scripts/raced.sh") cgo=1 ;;
esac
CGO_ENABLED=$cgo exec "$go" test -json -trimpath -vet=off -count=1 -timeout 30m "${race[@]}" -run "$2" "$1"
