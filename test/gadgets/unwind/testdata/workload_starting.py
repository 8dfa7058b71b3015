# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode starting: run in its namespace."""
# Until a new thread runs, its state has the id of the one that made it. On one
# processor it does not run at once.
import _thread
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
stop, runs = threading.Event(), threading.Semaphore(0)

def made():
    runs.release()
    stop.wait()

def maker():
    _thread.start_new_thread(made, ())
    sample()
    time.sleep(0.0005)
    sample()

for number in range(SAMPLES):
    thread = threading.Thread(target=maker)
    thread.start()
    thread.join()
    runs.acquire()  # else the state has the id of the next maker, too, which gets this one's stack
stop.set()
time.sleep(0.05)
