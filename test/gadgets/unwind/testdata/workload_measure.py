# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode measure: run in its namespace."""
# SAMPLES is the depth; id 0 is not kept.
def measured(depth):
    if depth > 1:
        return measured(depth - 1)
    for _ in range(20000):
        mark(0)

sys.setrecursionlimit(5000)
measured(SAMPLES - 1)
