#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a small transformer, as they cost the processor.

    scripts/pytorch.sh examples/pytorch/train.py --steps 100

Three encoder layers, batch 8 × 64, AdamW: some 200 kernels a step. Without a GPU a step is
the time of Python, PyTorch and the driver's calls, so a tracer's cost is at its maximum.
Prints a line of JSON: steps, the median of their milliseconds, bytes that tensors hold, and
with SIMCUDA_COUNTS the driver calls of a step.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch

import calls


class Training:
    def __init__(self, device):
        torch.manual_seed(1)
        layers = [torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True) for _ in range(3)]
        self.model = torch.nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(8, 64, 256, device=device)

    def forward(self, batch):
        return self.model(batch).square().mean()

    def step(self):
        loss = self.forward(self.batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, help="default: 100, or as many as the seconds take")
    arguments.add_argument("--seconds", type=float)
    arguments.add_argument("--warmup", type=int, default=5, help="steps that are not measured")
    arguments.add_argument("--device", default="cuda:0")
    arguments.add_argument("--hold", action="store_true",
                           help='say {"ready": PID} and wait for a line before the steps and after them')
    options = arguments.parse_args()

    training = Training(options.device)
    for _ in range(options.warmup):
        training.step()
    hold(options.hold, "ready")
    times = []
    before, begin = calls.counts(), time.monotonic()
    most = options.steps or (100 if options.seconds is None else sys.maxsize)
    while len(times) < most and (options.seconds is None or time.monotonic() - begin < options.seconds):
        start = time.perf_counter()
        training.step()
        times.append(time.perf_counter() - start)
    result = {"steps": len(times), "median_ms": round(statistics.median(times) * 1e3, 3),
              "allocated": torch.cuda.memory_allocated(options.device)}
    after = calls.counts()
    if after:
        result["calls"] = calls.per_step(before, after, len(times))
    print(json.dumps(result), flush=True)
    hold(options.hold, "done")


def hold(wanted, what):
    if wanted:
        print(json.dumps({what: os.getpid()}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
