#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a workload that leaks GPU memory and shows the line that does it. Uses a
# real GPU with PyTorch where there is one, and the simulated driver elsewhere.
# Everything that it writes is in demo-out/.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${DEMO_SECONDS:-10}
out=demo-out
profile=$out/cuda_alloc.pb.gz
flamegraph=$out/flamegraph.html

root=()
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || { echo "demo: ig-gpu needs root, and there is no sudo" >&2; exit 1; }
	root=(sudo)
fi

has_gpu() {
	[ -e /dev/nvidia0 ] && ldconfig -p | grep -q 'libcuda\.so\.1' &&
		python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null
}

if has_gpu; then
	echo "==> a GPU and PyTorch are here: the workload uses them"
	workload=(python3 examples/inference/inference.py --torch)
else
	echo "==> no GPU with PyTorch here: the workload uses the simulated driver, build/simcuda/libcuda.so.1"
	workload=(python3 examples/inference/inference.py --libcuda build/simcuda/libcuda.so.1)
fi
# Seconds of imports, as with PyTorch: time to attach before the model loads.
workload+=(--leak --imports 3 --seconds "$((seconds + 5))")

rm -rf "$out"
mkdir -p "$out"
"${workload[@]}" >"$out/workload.log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

sleep 0.3 # let it fail, if it must
if ! kill -0 "$pid" 2>/dev/null; then
	echo "demo: the workload ended at once:" >&2
	tail -5 "$out/workload.log" >&2
	exit 1
fi

gadget=(bin/ig-gpu run cuda_alloc --host --pid "$pid" --timeout "$seconds"
	--pprof-out "$profile" --flamegraph-out "$flamegraph")
echo "==> ${root[*]:+${root[*]} }${gadget[*]}"
echo "    (${seconds} s; the last of its tables follows, all are in $out/tables.txt)"
"${root[@]}" "${gadget[@]}" >"$out/tables.txt"
# The table is printed anew each second: keep what follows the last header.
awk '/INUSE.*FRAME/ && /PEAK/ { table = "" } { table = table $0 "\n" } END { printf "%s", table }' \
	"$out/tables.txt" | sed 's/ *$//' | head -25

for file in "$profile" "$flamegraph"; do
	[ -s "$file" ] || { echo "demo: $file was not written" >&2; exit 1; }
done
if [ ${#root[@]} -gt 0 ]; then sudo chown -R "$(id -u):$(id -g)" "$out"; fi

cat <<END

Open next:
  $flamegraph   in a browser: who holds the memory, as a flame graph
  go tool pprof -http=: $profile   the same as a profile, with differences and peaks
  $out/workload.log   what the workload said about itself
Then run it on your own process: sudo bin/ig-gpu run cuda_alloc --host --pid PID
END
