# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode foreign: run in its namespace."""
# Each thread of C gets a PyThreadState for the time of a callback.
def called():
    go(3)
    if random.random() < 0.5:
        library.remember_state()

    def again():
        go(2)

    if random.random() < 0.1:
        library.call_in_thread(kind(again))

kind = ctypes.CFUNCTYPE(None)
mine.count = 0
for _ in range(SAMPLES):
    library.call_in_thread(kind(called))
library.mark_in_thread.argtypes = [ctypes.c_ulong]
library.mark_in_thread(int(FIRST) + (1 << 30))
