# SPDX-License-Identifier: Apache-2.0
"""Reads a memory snapshot with PyTorch's own program, and prints where its blocks lie.

    snapshot.py FILE
"""
import json
import pickle
import sys

from torch.cuda import _memory_viz as viz

with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)


def same(text):
    """The text of which PyTorch would have a flame graph made."""
    return text


assert "snapshot.pickle" in viz.trace_plot(snapshot)
assert "snapshot.pickle" in viz.trace_plot(snapshot, plot_segments=True)
assert "snapshot.pickle" in viz.segment_plot(snapshot)
viz.trace(snapshot)
viz.segments(snapshot, same)
blocks = [(s, b) for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
print(json.dumps({
    "segments": [[s["device"], s["address"], s["total_size"],
                  [[b["address"], b["size"], b["requested_size"]] for b in s["blocks"] if b["state"] == "active_allocated"]]
                 for s in snapshot["segments"]],
    "lines": sorted({f"{f['name']}:{f['line']}" for _, b in blocks for f in b["frames"] if f["filename"].endswith("tensors.py")}),
    "stats": viz.segsum(snapshot),
    "memory": viz.memory(snapshot, same),
    "events": [len(t) for t in snapshot["device_traces"]],
}))
