#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop of real PyTorch: three encoder layers, batch 8 x 64, AdamW.

Prints "STEPS WALL CPU" several times a second: how many steps are done, and seconds of
CLOCK_MONOTONIC and of the process's processor time. A line on stdin chooses what records
the steps from then on: none, history (torch.cuda.memory._record_memory_history with
Python stacks) or profiler (torch.profiler on the CPU, one profile for every 20 steps).
"""
import select
import sys
import time

import torch

model = torch.nn.Sequential(*(torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True) for _ in range(3))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.zeros(8, 64, 256, device="cuda")


def step():
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def steps(n):
    for _ in range(n):
        step()


def profiled(n):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True):
        steps(n)


def main():
    done, run = 0, steps
    while True:
        run(20)
        done += 20
        print(done, time.monotonic(), time.process_time(), flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            mode = sys.stdin.readline().strip()
            if not mode:
                return
            torch.cuda.memory._record_memory_history("all" if mode == "history" else None, stacks="python")
            run = profiled if mode == "profiler" else steps


main()
