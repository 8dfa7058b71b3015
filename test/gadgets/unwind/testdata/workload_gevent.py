# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode gevent: run in its namespace."""
import gevent
import gevent.event
import gevent.lock
import gevent.pool
import gevent.queue


def green(depth):
    """Each level gives the others their turn."""
    sample()
    gevent.sleep(0)
    if depth:
        green(depth - 1)
    gevent.sleep(0.0005 * (depth % 3))
    go(3)


def producer(queue):
    for number in range(10):
        queue.put(number)
        sample()
    queue.put(None)


def consumer(queue):
    while queue.get() is not None:
        go(2)


queue = gevent.queue.Queue(2)
jobs = [gevent.spawn(green, i % 12) for i in range(24)]
jobs += [gevent.spawn(producer, queue), gevent.spawn(consumer, queue)]
gevent.get_hub().loop.run_callback(sample)  # in the hub's own greenlet
pool = gevent.get_hub().threadpool
jobs += [pool.spawn(go, 6) for _ in range(10)]
gevent.joinall(jobs)
for job in jobs:
    job.get()
list(gevent.pool.Pool(3).imap_unordered(green, range(5)))
