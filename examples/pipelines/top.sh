#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The three stacks that hold most, the largest first, for a small terminal. sort, limiter,
# fields.
exec ${IG:-bin/ig-gpu} run "${GADGETS-}cuda_alloc" --sort allocs:-inuse_bytes --max-entries allocs:3 \
	--fields allocs:proc.pid,kind,inuse_bytes,inuse_objects,frame "$@"
