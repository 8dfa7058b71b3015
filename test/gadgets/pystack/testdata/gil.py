# SPDX-License-Identifier: Apache-2.0
"""Three threads that want the GIL all the time, and one that waits for a lock.
Says "ready", and runs until its stdin ends."""
import sys
import threading

never = threading.Lock()
never.acquire()


def wants():
    while True:
        pass


def sleeps():
    never.acquire()


for target in (wants, wants, wants, sleeps):
    threading.Thread(target=target, daemon=True).start()
print('"ready"', flush=True)
sys.stdin.read()
