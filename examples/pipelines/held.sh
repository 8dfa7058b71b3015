#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Stacks that hold 1 MiB or more, and have never freed anything: weights, caches, leaks.
# filter-expr, sort.
exec ${IG:-bin/ig-gpu} run "${GADGETS-}cuda_alloc" \
	--filter-expr.allocs 'inuse_bytes >= 1048576 && freed_objects == 0' \
	--sort allocs:-inuse_bytes --fields allocs:proc.pid,kind,inuse_bytes,frame "$@"
