#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels of all origins: PyTorch's own, cuBLAS, a graph, one compiled at run time.

    scripts/pytorch.sh examples/pytorch/kernels.py compiled      # by nvrtc
    scripts/pytorch.sh examples/pytorch/kernels.py eager
    scripts/pytorch.sh examples/pytorch/kernels.py replayed      # a CUDA graph
    scripts/pytorch.sh examples/pytorch/kernels.py profiled      # with torch.profiler

Prints a line of JSON, with launches by operator where torch.profiler counted them.
"""
import argparse
import collections
import json
import os
import sys

import torch

SOURCE = "template <typename T> T cubed(T x, T y) { return x * x * x + y; }"


def eager(batch, weight, rounds):
    for _ in range(rounds):
        batch = torch.softmax(batch @ weight, dim=-1)
    return {"launches": 2 * rounds}


def compiled(batch, weight, rounds):
    cubed = torch.cuda.jiterator._create_jit_fn(SOURCE)
    for _ in range(rounds):
        batch = cubed(batch, batch)
    return {"launches": rounds}


def replayed(batch, weight, rounds):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        eager(batch, weight, 1)  # lazy loading does not work while capturing
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        eager(batch, weight, 3)
    for _ in range(rounds):
        graph.replay()
    return {"replays": rounds}


def profiled(batch, weight, rounds):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        eager(batch, weight, rounds)
    operators = collections.Counter(event.name for event in profile.events())
    return {"operators": {name: n for name, n in sorted(operators.items()) if name.startswith("aten::")}}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("how", choices=["eager", "compiled", "replayed", "profiled"])
    arguments.add_argument("--rounds", type=int, default=50)
    arguments.add_argument("--hold", action="store_true", help="wait for a line before and after")
    options = arguments.parse_args()
    batch = torch.randn(128, 256, device="cuda")
    weight = torch.randn(256, 256, device="cuda")
    print(json.dumps({"ready": os.getpid()}), flush=True)
    if options.hold:
        sys.stdin.readline()
    with torch.no_grad():
        result = globals()[options.how](batch, weight, options.rounds)
    torch.cuda.synchronize()
    print(json.dumps({"how": options.how, **result}), flush=True)
    if options.hold:
        sys.stdin.readline()


if __name__ == "__main__":
    main()
