#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Settles on this machine's GPU what gpu-gadgets was only tested for without one: see
# README.md beside this file. It ends after ten minutes at the latest.
#
#   sudo ./run.sh [-out DIRECTORY] [-only STEP,STEP] [-python PYTHON]
set -eu
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root: eBPF" >&2; exit 1; }
[ -r /sys/kernel/btf/vmlinux ] || { echo "run.sh: this kernel has no BTF (/sys/kernel/btf/vmlinux)" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/gpu-kit" "$@"
