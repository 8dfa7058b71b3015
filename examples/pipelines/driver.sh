#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The driver's count for each process, from Inspektor Gadget's bridge to the GPU
# (bridges.gpu.enabled of its chart): its own gadget, which runs beside ours. filter-expr,
# sort.
exec ${IG:-bin/ig-gpu} run "${UPSTREAM-ghcr.io/inspektor-gadget/gadget/}gpu_top_per_pid:${UPSTREAM_TAG-v0.55.0}" \
	--filter-expr.gpu_top_per_pid 'mem_used_raw >= 1048576' \
	--sort gpu_top_per_pid:-mem_used_raw --fields proc.pid,proc.comm,mem_used_raw,device_count "$@"
