# SPDX-License-Identifier: Apache-2.0
"""What PyTorch itself says that a process holds."""
import collections
import os

import lines


def held_by_line(torch):
    """Bytes and blocks by device and innermost frame, as PyTorch's recorder has them.

    requested: what programs requested of these bytes.
    """
    found = collections.Counter()
    requested = collections.Counter()
    count = collections.Counter()
    for segment in torch.cuda.memory._snapshot()["segments"]:
        for block in segment["blocks"]:
            if block["state"] != "active_allocated":
                continue
            frame = (block.get("frames") or [None])[0]
            line = frame and f"{frame['name']} ({os.path.basename(frame['filename'])}:{frame['line']})"
            found[segment["device"], line or ""] += block["size"]
            requested[segment["device"], line or ""] += block["requested_size"]
            count[segment["device"], line or ""] += 1
    return [{"device": d, "line": line, "bytes": size, "blocks": count[d, line],
             "requested": requested[d, line]} for (d, line), size in found.items()]


def holds(torch, recorder=True):
    """Call it while nothing else runs. The lines for the driver's journal are written, too."""
    lines.write()
    return {"pid": os.getpid(),
            "allocated": [torch.cuda.memory_allocated(d) for d in range(2)],
            "reserved": [torch.cuda.memory_reserved(d) for d in range(2)],
            "lines": held_by_line(torch) if recorder else []}


def segments(torch):
    """Where PyTorch's segments and the blocks in use lie: device, address, size, blocks."""
    return [[s["device"], s["address"], s["total_size"],
             [[b["address"], b["size"], b["requested_size"]] for b in s["blocks"] if b["state"] == "active_allocated"]]
            for s in torch.cuda.memory._snapshot()["segments"]]
