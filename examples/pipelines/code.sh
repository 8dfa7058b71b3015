#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Only memory of functions with matching names: CODE, a regular expression. filter, sort.
exec ${IG:-bin/ig-gpu} run "${GADGETS-}cuda_alloc" --filter.allocs "frame~${CODE:-cache}" \
	--sort allocs:-inuse_bytes --fields allocs:proc.pid,kind,inuse_bytes,frame "$@"
