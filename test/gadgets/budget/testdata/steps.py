#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the model of examples/pytorch in a process of its own for each line on stdin, which
says for how many seconds. Prints the process's id when it has ended.

PyTorch is imported once; CUDA begins in each child.
"""
import os
import pathlib
import sys
import time

import torch  # noqa: F401, before the children

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/pytorch"))
import train


def steps(seconds):
    training = train.Training("cuda:0")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        training.step()


print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        steps(float(line))
        os._exit(0)
    os.waitpid(child, 0)
    print(child, flush=True)
