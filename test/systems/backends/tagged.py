#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs examples/inference/inference.py unchanged, with a tag for each allocation: the
driver's journal and the truth files beside it then say which Python stack took how
much.

    SIMCUDA_JOURNAL=DIR tagged.py LIBCUDA [arguments of inference.py]

It prints {"ready": pid} with the library loaded, and begins when a line arrives.
"""
import ctypes
import json
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../gadgets/exact"), os.path.join(HERE, "../../../examples/inference")]
import cuda  # noqa: E402
import inference  # noqa: E402
import truth  # noqa: E402

LIBRARY = sys.argv[1]
driver = truth.Driver(LIBRARY, os.environ["SIMCUDA_JOURNAL"])
os.register_at_fork(after_in_child=driver.reset)


class Size(ctypes.c_size_t):
    """The argument that only allocations have. It is converted right before the call,
    on the line of the caller, so no frame of ours is in the stack of the call."""

    @classmethod
    def from_param(cls, value):
        driver.tag(sys._getframe(1))
        return ctypes.c_size_t(value)


cuda.ctypes = types.SimpleNamespace(**vars(ctypes))
cuda.ctypes.c_size_t = Size

print(json.dumps({"ready": os.getpid()}), flush=True)
sys.stdin.readline()
sys.argv[1:] = ["--libcuda", LIBRARY] + sys.argv[2:]
inference.main()
