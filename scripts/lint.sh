#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh: checks shell scripts with shellcheck, and the layout of C with clang-format,
# which Debian has; the Go linters are golangci-lint's. Prints what differs and exits 1.
set -euo pipefail
cd "$(dirname "$0")/.."

# Versions format differently; this one is the compiler's of the gadgets.
clang_format=clang-format-19
unformatted=scripts/lint/unformatted

missing=()
command -v shellcheck >/dev/null || missing+=(shellcheck)
command -v $clang_format >/dev/null || missing+=("$clang_format")
if [ ${#missing[@]} -gt 0 ]; then
	root=()
	[ "$(id -u)" -eq 0 ] || root=(sudo)
	echo "==> install ${missing[*]}"
	command -v apt-get >/dev/null || { echo "lint.sh: no apt-get here; please install: ${missing[*]}" >&2; exit 1; }
	"${root[@]}" apt-get update -qq
	DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

status=0
git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck || status=1

# Files that did not have the style when it was introduced are left as they are.
work=$(mktemp)
trap 'rm -f "$work"' EXIT
while read -r file; do
	[ -f "$file" ] || continue # removed, and not committed yet
	$clang_format "$file" >"$work"
	if grep -qxF "$file" "$unformatted"; then
		! cmp -s "$file" "$work" || { echo "$file: has the style: remove it from $unformatted" >&2; status=1; }
	elif ! diff -u --label "$file" --label "$file, formatted" "$file" "$work" >&2; then
		echo "$file: $clang_format -i is due" >&2
		status=1
	fi
done < <(git ls-files 'bpf/*.h' '*.bpf.c' 'examples/*.[ch]' 'test/*.c')
while read -r file; do
	[ -f "$file" ] || { echo "$unformatted: there is no $file" >&2; status=1; }
done <"$unformatted"
exit $status
