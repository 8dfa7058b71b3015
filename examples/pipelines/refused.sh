#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Each time that memory ran out, with the holders; no other failures. filter, fields.
exec ${IG:-bin/ig-gpu} run "${GADGETS-}cuda_alloc" --filter.ooms 'error==CUDA_ERROR_OUT_OF_MEMORY' \
	--fields ooms:proc.pid,requested_bytes,error,frame,holders "$@"
