#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# PyTorch without a GPU: pytorch.sh PROGRAM.py [ARGUMENT…] runs a program with the real
# PyTorch that test/support/fixtures/torch.sh has fetched, on the simulated driver, runtime and
# NCCL. Options of Python work, too (-c, -m). Needs root, for a mount namespace of its own.
#
# The process becomes the program: same pid, and /proc/PID/exe is python3.13. Libraries in
# a LD_LIBRARY_PATH of the caller come first, for a test with a driver of its own.
set -euo pipefail
repository=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
root=${PYTORCH_ROOT:-$repository/build/fixtures/torch/root}
python=$root/usr/bin/python3.13
libraries=$root/usr/lib/x86_64-linux-gnu

fail() {
	echo "pytorch.sh: $*" >&2
	exit 1
}

[ "$(id -u)" -eq 0 ] || fail "needs root, for a mount namespace"
[ -x "$python" ] && [ -d "$root/usr/lib/python3/dist-packages/torch" ] ||
	fail "PyTorch has not been fetched: run test/support/fixtures/torch.sh"
path=
for library in simcuda/libcuda.so.1 simnccl/libnccl.so.2 simcudart/libcudart.so.12 simcudart/libcudnn.so.9; do
	[ -e "$repository/build/$library" ] || fail "build/$library is missing: run make simcuda"
	case $path in *"${library%/*}:") ;; *) path=$path$repository/build/${library%/*}: ;; esac
done
for library in usr/lib/libgloo_cuda.so.0 usr/lib/x86_64-linux-gnu/libtorch_cuda.so.2.6 \
	usr/lib/x86_64-linux-gnu/blas/libblas.so.3 usr/lib/x86_64-linux-gnu/lapack/liblapack.so.3 \
	usr/lib/python3/dist-packages/torch/lib/libcaffe2_nvrtc.so; do
	[ -e "$root/$library" ] || fail "$(basename "$library") is missing: run test/support/fixtures/torch.sh"
	path=$path$root/${library%/*}:
done
path=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${path%:}
export PYTHONHOME=$root/usr PYTHONNOUSERSITE=1
unset PYTHONPATH
export USE_LIBUV=${USE_LIBUV:-0} # Debian builds PyTorch without it

# This Python wants the loader of its own C library, which is where the system has its own.
# shellcheck disable=SC2016 # for the inner shell
exec unshare -m sh -c '
	mount --bind "$1" "$(readlink -f /lib64/ld-linux-x86-64.so.2)" || exit 1
	export LD_LIBRARY_PATH="$2" # from here on: it has that C library, too
	shift 2
	exec "$@"' pytorch.sh "$libraries/ld-linux-x86-64.so.2" "$path" "$python" "$@"
