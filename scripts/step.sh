#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# step.sh LABEL COMMAND…: runs a command that may take long, and says what it is,
# that it is still at it, and how long it took, and how much processor time. Exits as
# the command does.
set -euo pipefail

label=$1
shift
start=$SECONDS
echo "==> $label"

"$@" &
command=$!
# The ticker's sleep must not hold our output open after we are gone.
while sleep 30 >/dev/null 2>&1; do echo "    … $((SECONDS - start)) s"; done &
ticker=$!
trap 'kill "$command" "$ticker" 2>/dev/null || true' EXIT

status=0
wait "$command" || status=$?
# Clock ticks of the children that ended: 16th and 17th field, proc(5).
read -r -a stat <"/proc/$$/stat"
processor=$(((stat[15] + stat[16]) / $(getconf CLK_TCK)))
if [ "$status" -eq 0 ]; then
	echo "    $label: $((SECONDS - start)) s, $processor s of processor time"
else
	echo "    $label: failed after $((SECONDS - start)) s" >&2
fi
exit "$status"
