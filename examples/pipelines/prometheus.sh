#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# GPU memory by process for Prometheus, through Inspektor Gadget's own operator: no stacks
# are taken, so there is one row for each process, kind and device. LISTEN is where it is
# scraped. (ig-gpu's --metrics-listen has more, docs/reference/metrics.md; this one runs anywhere.)
# annotations, otel-metrics.
key=metrics.type=key
exec ${IG:-bin/ig-gpu} run "${GADGETS-}cuda_alloc" --stacks=false \
	--annotate "allocs:metrics.collect=true,allocs.inuse_bytes:metrics.type=gauge,allocs.proc.comm:$key,allocs.proc.pid:$key,allocs.kind:$key,allocs.device:$key" \
	--otel-metrics-name allocs:gpu_memory \
	--otel-metrics-listen --otel-metrics-listen-address "${LISTEN:-127.0.0.1:2224}" "$@"
