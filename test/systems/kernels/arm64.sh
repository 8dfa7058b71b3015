#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds what runs on an arm64 machine into build/arm64, beside the ig-gpu that make
# puts there: the simulated driver and a program without Python, both with signed
# return addresses, the simulated NCCL, Inspektor Gadget's own ig, and the tests.
# Installs the compiler when it is missing.
set -euo pipefail
cd "$(dirname "$0")/../../.."

out=$PWD/build/arm64
cc=aarch64-linux-gnu-gcc
flags="-mbranch-protection=standard"

if ! echo '#include <stdlib.h>' | $cc -fsyntax-only -xc - 2>/dev/null; then
	command -v apt-get >/dev/null || { echo "please install $cc with the headers of its C library" >&2; exit 1; }
	echo "==> install gcc-aarch64-linux-gnu" >&2
	root=()
	[ "$(id -u)" -eq 0 ] || root=(sudo)
	"${root[@]}" apt-get update -qq
	"${root[@]}" apt-get install -y -qq --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross >/dev/null
fi
mkdir -p "$out"
make --no-print-directory -s -C examples/simcuda OUT="$out/simcuda" CC=$cc CFLAGS="-O2 -g0 $flags"
make --no-print-directory -s -C examples/simnccl OUT="$out/simnccl" CC=$cc CFLAGS="-O2 -g0 $flags"
GOARCH=arm64 test/systems/kernels/stock-ig.sh "$out/vm/ig"
$cc -O1 -Wall -Werror -fno-omit-frame-pointer $flags -o "$out/native" test/systems/kernels/testdata/native.c -ldl
$cc -O1 -Wall -Werror -o "$out/entries" test/systems/kernels/testdata/entries.c
$cc -O1 -Wall -Werror $flags -shared -fPIC -nostdlib -o "$out/libmark.so" test/gadgets/unwind/testdata/mark.c
for tests in systems/kernels gadgets/unwind; do
	GOARCH=arm64 go test -c -o "$out/$(basename "$tests").test" "./test/$tests"
done
