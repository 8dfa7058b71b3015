#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what `make build` and `make test` need and is not there yet. Prints
# nothing when nothing is missing. Packages come from the distribution (Debian
# and Ubuntu); elsewhere it says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

oldest_llvm=15 # see findTool in cmd/gadget-images
oldest_go=1.26 # see go.mod

# have_llvm NAME: NAME-22 … NAME-15, or a plain NAME that is new enough.
have_llvm() {
	local version
	for version in $(seq 22 -1 "$oldest_llvm"); do
		command -v "$1-$version" >/dev/null && return
	done
	command -v "$1" >/dev/null &&
		[ "$("$1" --version | grep -oE 'version [0-9]+' | grep -oE '[0-9]+' | head -1)" -ge "$oldest_llvm" ]
}

# can_compile PROGRAM: the C compiler finds the headers that PROGRAM includes.
can_compile() {
	command -v gcc >/dev/null && echo "$1" | gcc -fsyntax-only -xc - 2>/dev/null
}

# Since 1.21, go fetches the version that go.mod asks for by itself.
have_go() {
	local version
	command -v go >/dev/null || return
	version=$(go env GOVERSION 2>/dev/null) || return
	[ "$(printf '%s\n' "$oldest_go" "${version#go}" | sort -V | head -1)" = "$oldest_go" ]
}

missing=()
have_llvm clang || missing+=(clang)
have_llvm llvm-strip || missing+=(llvm)
can_compile '#include <stdlib.h>
#include <asm/types.h>' || missing+=(gcc libc6-dev linux-libc-dev)
can_compile '#include <linux/types.h>
#include <bpf/bpf_helpers.h>' || missing+=(libbpf-dev)
command -v make >/dev/null || missing+=(make)
command -v python3 >/dev/null || missing+=(python3)
{ command -v busybox && ! ldd "$(command -v busybox)"; } >/dev/null 2>&1 || missing+=(busybox-static) # test/systems/kit
have_go || missing+=(go)
[ ${#missing[@]} -gt 0 ] || exit 0

echo "==> install ${missing[*]}"
if ! command -v apt-get >/dev/null; then
	echo "setup: no apt-get here; please install: LLVM $oldest_llvm or newer (clang, llvm-strip)," \
		"libbpf headers, gcc, make, python3, Go $oldest_go or newer" >&2
	exit 1
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || { echo "setup: installing packages needs root, and there is no sudo" >&2; exit 1; }
	root=(sudo)
fi
start=$SECONDS
"${root[@]}" apt-get update -qq

# candidate PACKAGE: the version that apt would install, or nothing.
candidate() {
	apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" { print $2 }'
}

packages=()
for name in "${missing[@]}"; do
	case $name in
	clang | llvm)
		for version in 19 20 21 18 17 16 15; do
			if [ -n "$(candidate "$name-$version")" ]; then
				packages+=("$name-$version")
				continue 2
			fi
		done
		echo "setup: this distribution has no $name $oldest_llvm or newer; see https://apt.llvm.org" >&2
		exit 1
		;;
	go)
		if dpkg --compare-versions "$(candidate golang-go)" ge 2:1.21; then
			packages+=(golang-go ca-certificates)
		else
			echo "setup: Go $oldest_go or newer is needed, and this distribution has none;" \
				"get it from https://go.dev/dl and put it in PATH" >&2
			exit 1
		fi
		;;
	*) packages+=("$name") ;;
	esac
done
DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
have_go || { echo "setup: Go $oldest_go could not be fetched by $(go version)" >&2; exit 1; }
echo "    installed in $((SECONDS - start)) s"
