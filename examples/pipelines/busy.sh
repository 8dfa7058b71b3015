#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The five stacks of Python that take the most CPU time.
# filter, sort, limiter.
exec ${IG:-bin/ig-gpu} run "${GADGETS-}py_stack" --filter.samples 'frame~[.]py:' \
	--sort samples:-samples --max-entries samples:5 --fields samples:proc.pid,proc.comm,samples,frame "$@"
