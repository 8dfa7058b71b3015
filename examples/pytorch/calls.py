# SPDX-License-Identifier: Apache-2.0
"""How often each function of the simulated driver was called, from SIMCUDA_COUNTS."""
import os
import pathlib
import struct

ROW = struct.Struct("=56sQ")


def counts():
    """Calls of this process so far, by function; empty if calls are not counted."""
    directory = os.environ.get("SIMCUDA_COUNTS")
    path = pathlib.Path(directory or "", f"{os.getpid()}.counts")
    if not directory or not path.exists():
        return {}
    rows = ROW.iter_unpack(path.read_bytes())
    return {name.rstrip(b"\0").decode(): calls for name, calls in rows if calls}


def per_step(before, after, steps):
    """The difference of two counts, by step; calls rarer than one in ten steps are omitted."""
    each = {name: (calls - before.get(name, 0)) / steps for name, calls in after.items()}
    return {name: round(n, 2) for name, n in sorted(each.items(), key=lambda x: -x[1]) if n >= 0.1}
