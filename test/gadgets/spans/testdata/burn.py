# SPDX-License-Identifier: Apache-2.0
"""Uses the processor under one span, another one and none, 5 : 3 : 2 of its time.
Arguments: the publishing library, and seconds of processor time. Prints the time of each, by its id."""
import ctypes
import json
import sys
import time


class Record(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("trace_id", ctypes.c_uint8 * 16), ("span_id", ctypes.c_uint8 * 8),
                ("valid", ctypes.c_uint8), ("flags", ctypes.c_uint8),
                ("attributes_bytes", ctypes.c_uint16)]


def burn(seconds):
    """For so long, and of the thread's own time how much that was."""
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass
    return time.thread_time() - begin


def main():
    library = ctypes.CDLL(sys.argv[1])
    parts = {"00f067aa0ba902b7": 0.005, "b7ad6b7169203331": 0.003, "": 0.002}
    used = dict.fromkeys(parts, 0)
    records = {i: Record((ctypes.c_uint8 * 16)(*[7] * 16),
                         (ctypes.c_uint8 * 8)(*bytes.fromhex(i)), 1) for i in parts if i}
    print("ready", flush=True)
    sys.stdin.readline()
    # Of the processor's time, however long the machine takes to give it.
    end = time.thread_time() + float(sys.argv[2])
    while time.thread_time() < end:
        for i, seconds in parts.items():
            library.publish(ctypes.byref(records[i]) if i else None)
            used[i] += burn(seconds)
    print(json.dumps(used), flush=True)
    print("done", flush=True)
    sys.stdin.readline()


main()
