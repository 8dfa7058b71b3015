#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# stubs.sh ROOT OUT: makes libraries that only have to load, for the PyTorch that is
# unpacked at ROOT. The imports of its libraries are defined there and return "not
# supported": linked with `-z now`, they do not load if a single function is missing.
set -eu

root=$1
out=$2
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find "$root/usr/lib" -name '*.so*' -type f -exec nm -D --undefined-only {} + 2>/dev/null |
	awk '$1 == "U" && $2 ~ /@lib/ { print $2 }
		$1 == "U" && $2 ~ /^(MPI|ompi)_/ { print $2 "@libmpi.so.40" }' | sort -u >"$work/imports"

# stub LIBRARY STATUS [FUNCTION=VALUE…]: the values are C expressions, of these functions.
stub() {
	library=$1
	status=$2
	shift 2
	{
		echo '#define EXPORT __attribute__((visibility("default")))'
		grep "@$library\$" "$work/imports" | sed 's/@.*//' | while read -r function; do
			case $function in
			ompi_*) echo "EXPORT char ${function}[1024];" && continue ;; # a variable
			esac
			value=$status
			type=int
			for special in "$@"; do
				[ "${special%%=*}" != "$function" ] || { value=${special#*=}; type=long; }
			done
			echo "EXPORT $type $function(void) { return ($type)($value); }"
		done
		echo "extern const char simulated_${library%%.*}[]; EXPORT const char simulated_${library%%.*}[] = \"stub\";"
	} >"$work/stub.c"
	echo "$library { *; };" >"$work/version"
	${CC:-gcc} -std=gnu11 -Wall -Wextra -Werror -O2 -fPIC -fvisibility=hidden -shared -s -Wl,--build-id \
		-Wl,-soname,"$library" -Wl,--version-script,"$work/version" -o "$out/$library.new" "$work/stub.c"
	mv "$out/$library.new" "$out/$library"
}

unsupported='"not supported: a stub"'
stub libcudnn.so.9 3000 cudnnGetVersion=90000 cudnnGetCudartVersion=12040 "cudnnGetErrorString=$unsupported"
stub libcufft.so.11 16
stub libcusparse.so.12 10 "cusparseGetErrorString=$unsupported" "cusparseGetErrorName=$unsupported"
stub libcusolver.so.11 9
stub libcurand.so.10 1
stub libnvToolsExt.so.1 0
stub libmpi.so.40 16
