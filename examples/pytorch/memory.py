#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's allocators and the device's memory.

    scripts/pytorch.sh examples/pytorch/memory.py SITUATION

Situations: cached, expandable (segments), async (cudaMallocAsync), split (max_split_size_mb),
graph (a CUDA graph with its private pool), loader (workers, pinned memory), snapshot
(PyTorch's own history with Python stacks), oom (SIMCUDA_CAPACITY=1GiB).
Prints a line of JSON: the memory in use according to PyTorch; for oom, its error.
"""
import argparse
import collections
import json
import os
import sys

SETTINGS = {
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
    "split": "max_split_size_mb:32",
}


class Cache:
    """Blocks that are kept for a while: the oldest is freed when there are too many."""

    def __init__(self, torch, most=24):
        self.torch, self.most = torch, most
        self.blocks = []

    def grow(self, megabytes):
        self.blocks.append(self.torch.empty(megabytes << 18, device="cuda"))
        if len(self.blocks) > self.most:
            del self.blocks[0]

    def views(self):
        return [block[: len(block) // 2].view(-1, 4) for block in self.blocks]


def fill(torch, cache):
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    for number in range(60):
        cache.grow(1 + number * 7 % 40)
        if number % 10 == 9:
            with torch.cuda.stream(side):
                scratch = torch.ones(1 << 20, device="cuda")
                scratch.record_stream(main)
                scratch.mul_(2)
    views = cache.views()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return views


def graph(torch, cache):
    """Results computed between capture and replay stay in the graph's own pool."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    batch = torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        model(batch)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured):
        cache.blocks.append(model(batch))
    for _ in range(10):
        captured.replay()
    torch.cuda.synchronize()
    return captured


def loader(torch, cache):
    examples = torch.utils.data.TensorDataset(torch.randn(256, 1024), torch.arange(256))
    batches = torch.utils.data.DataLoader(examples, batch_size=32, num_workers=2, pin_memory=True)
    for batch, numbers in batches:
        cache.blocks.append(batch.to("cuda", non_blocking=True))
        copied = numbers.to("cuda", non_blocking=True).cpu()
        assert torch.equal(copied, numbers), "what was copied to the device comes back"


def snapshot(torch, cache):
    """Each block with the lines that allocated it, as PyTorch recorded them."""
    torch.cuda.memory._record_memory_history(context="all", stacks="python")
    views = fill(torch, cache)
    lines = collections.Counter()
    for segment in torch.cuda.memory._snapshot()["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                frames = block.get("frames") or [{"name": "", "line": 0}]
                lines[f"{frames[0]['name']}:{frames[0]['line']}"] += block["size"]
    return {"views": len(views), "lines": dict(lines)}


def oom(torch, cache):
    try:
        while True:
            cache.blocks.append(torch.empty(64 << 18, device="cuda"))
    except torch.OutOfMemoryError as error:
        return {"error": str(error)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("situation", choices=["cached", "graph", "loader", "snapshot", "oom", *SETTINGS])
    arguments.add_argument("--hold", action="store_true", help="wait for a line before the end")
    options = arguments.parse_args()
    if options.situation in SETTINGS:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[options.situation]
    import torch  # reads the setting

    cache = Cache(torch)
    torch.cuda.init()
    print(json.dumps({"ready": os.getpid()}), flush=True)
    if options.hold:
        sys.stdin.readline()
    kept = globals().get(options.situation, fill)(torch, cache)
    result = {"situation": options.situation, "allocated": torch.cuda.memory_allocated(),
              "reserved": torch.cuda.memory_reserved(), "backend": torch.cuda.memory.get_allocator_backend()}
    print(json.dumps({**result, **kept} if isinstance(kept, dict) else result), flush=True)
    if options.hold:
        sys.stdin.readline()


if __name__ == "__main__":
    main()
