#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training step of examples/pytorch, again and again.

Prints "STEPS WALL CPU" several times a second: how many steps are done, and seconds of
CLOCK_MONOTONIC and of the process's processor time. A line on stdin chooses what records
the steps from then on: none, history (torch.cuda.memory._record_memory_history with
Python stacks) or profiler (torch.profiler on the CPU without stacks, one profile for every
20 steps).
"""
import pathlib
import select
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/pytorch"))
import train

training = train.Training("cuda:0")


def steps(n):
    for _ in range(n):
        training.step()


def profiled(n):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
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
