#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh TIME [PACKAGE…]: runs each fuzz target of the packages (all, unless named) for
# TIME, such as 20s, one after the other. What go test finds it writes below the package's
# testdata/fuzz, where it is a test from then on. Exits 1 when a target failed, or when
# there was none.
set -euo pipefail

if [ $# -lt 1 ]; then
	echo "usage: fuzz.sh TIME [PACKAGE…]" >&2
	exit 2
fi
time=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
go=${GO:-go}
packages=("$@")
if [ $# -eq 0 ]; then
	mapfile -t packages < <(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')
fi

# is_over: go test before 1.27 may report the end of its own time as a failure, without an input
# (https://go.dev/issue/75804).
is_over() {
	awk '/Failing input|panic|hung/ { found = 1 } /^    context deadline exceeded$/ { over = 1 } END { exit !(over && !found) }'
}

run=0 failed=
for package in "${packages[@]}"; do
	module=. path=$package
	[ -f "$package/go.mod" ] && module=$package path=.
	binary=$(mktemp)
	"$go" test -C "$module" -c -o "$binary" "$path"
	targets=$("$binary" -test.list '^Fuzz')
	rm -f "$binary"
	for target in $targets; do
		run=$((run + 1))
		# An input that is new is made smaller, by default for a minute, in which nothing else runs.
		output=$("$go" test -C "$module" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$path" 2>&1) ||
			is_over <<<"$output" || {
			printf '%s\n' "$output"
			failed="$failed $package.$target"
			continue
		}
		# A target that hangs runs into the time limit, which is no error to go test.
		execs=$(grep -o 'execs: [0-9]*' <<<"$output" | tail -n1) || {
			echo "    $package $target: no input was finished in $time" >&2
			failed="$failed $package.$target"
			continue
		}
		echo "    $package $target: $execs"
	done
done
if [ -n "$failed" ]; then
	echo "fuzz.sh: failed:$failed" >&2
	exit 1
fi
if [ "$run" -eq 0 ]; then
	echo "fuzz.sh: no target in ${packages[*]}" >&2
	exit 1
fi
