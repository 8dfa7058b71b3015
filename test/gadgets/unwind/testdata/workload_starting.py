# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode starting: run in its namespace."""
# Until a new thread runs, its state has the id of the one that made it; after that one's end,
# the id of the next maker, too, which gets the same stack. On one processor the new threads
# do not run at once.
import _thread
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
stop = threading.Event()

def maker():
    _thread.start_new_thread(stop.wait, ())
    _thread.start_new_thread(stop.wait, ())
    sample()
    time.sleep(0.0005)
    sample()

for number in range(SAMPLES):
    thread = threading.Thread(target=maker)
    thread.start()
    thread.join()
stop.set()
time.sleep(0.05)
