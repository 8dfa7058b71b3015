#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on two devices.

    scripts/pytorch.sh examples/pytorch/parallel.py threads      # DataParallel
    scripts/pytorch.sh examples/pytorch/parallel.py processes    # DDP over NCCL
    scripts/pytorch.sh examples/pytorch/parallel.py spawn        # independent processes

Prints a line of JSON for each process when it is done. With --hold each process prints
{"ready": PID} before its steps and waits until the file that --hold names is there.
"""
import argparse
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
import torch.nn.parallel.distributed


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))


def step(module, optimizer, batch):
    optimizer.zero_grad()
    module(batch).square().mean().backward()
    optimizer.step()


def run(module, device, options, rank=0):
    optimizer = torch.optim.AdamW(module.parameters())
    batch = torch.randn(64, 256, device=device)
    step(module, optimizer, batch)
    if options.hold:
        print(json.dumps({"ready": os.getpid()}), flush=True)
        while not pathlib.Path(options.hold).exists():
            time.sleep(0.01)
    for _ in range(options.steps):
        step(module, optimizer, batch)
    torch.cuda.synchronize()
    allocated = [torch.cuda.memory_allocated(d) for d in range(torch.cuda.device_count())]
    print(json.dumps({"rank": rank, "pid": os.getpid(), "steps": options.steps, "allocated": allocated}), flush=True)


def threads(options):
    """One process: a thread for each device runs its replica."""
    run(torch.nn.DataParallel(model().to("cuda:0")), "cuda:0", options)


def rank_of_ddp(rank, options, rendezvous):
    # The check broadcasts the shapes by a kernel and reads them back: kernels write nothing here.
    torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *_, **__: None
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    run(torch.nn.parallel.DistributedDataParallel(model().to(rank), device_ids=[rank]), rank, options, rank)
    torch.distributed.destroy_process_group()


def processes(options):
    """A process for each device; gradients are reduced by NCCL while others are computed."""
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(rank_of_ddp, args=(options, f"{directory}/rendezvous"), nprocs=2)


def rank_alone(rank, options):
    run(model().to(rank), rank, options, rank)


def spawn(options):
    """A process for each device, without gradients in common."""
    torch.multiprocessing.spawn(rank_alone, args=(options,), nprocs=2)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("how", choices=["threads", "processes", "spawn"])
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--hold", metavar="FILE")
    options = arguments.parse_args()
    globals()[options.how](options)


if __name__ == "__main__":
    main()
