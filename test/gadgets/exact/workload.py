#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The random workload of the exactness test.

Several processes with several threads call every driver entry that determines who
holds memory, in a random but seeded order, through about sixty Python stacks
(routes.py), and write down who did what (truth.py). A tracer must
match the journal's sums to the byte.

    workload.py --libcuda build/simcuda/libcuda.so.1 --out DIR [--calls 200000]
    workload.py --hip build/simhip/libamdhip64.so.6 --out DIR

DIR gets the driver's journals and the truth files. With --hold the parent prints
{"holding": [pid, …]} on one line when all calls are made, and all processes keep
their memory until a line arrives on its standard input. With --start-on-stdin
it prints {"ready": pid} with the library loaded and waits for a line first.

What the threads do at the same time is limited to what has one true answer: a
context is destroyed, or reset, while no other thread is in a call, because who
then owned an allocation made in that moment is a matter of luck. Addresses and
handles, on the other hand, pass from thread to thread as fast as they can.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import truth  # noqa: E402
from hip import HipProcess  # noqa: E402
from worker import Process  # noqa: E402


def arguments():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--libcuda", default="build/simcuda/libcuda.so.1")
    a.add_argument("--hip", help="a simulated libamdhip64, in place of the CUDA driver")
    a.add_argument("--out", required=True, help="directory for journals and truth files")
    a.add_argument("--calls", type=int, default=200000, help="driver calls in all")
    a.add_argument("--seconds", type=float, default=0, help="the calls take at least so long, at an even rate")
    a.add_argument("--processes", type=int, default=4)
    a.add_argument("--threads", type=int, default=8, help="per process")
    a.add_argument("--devices", type=int, default=2)
    a.add_argument("--rounds", type=int, default=5, help="contexts end between rounds")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--fail-every", type=int, default=97, help="0: no injected failures")
    a.add_argument("--deterministic", action="store_true",
                   help="threads take turns: the same calls in the same order each time")
    a.add_argument("--plain-names", action="store_true", help="ASCII function names only")
    a.add_argument("--hold", action="store_true", help="keep everything until a line on stdin")
    a.add_argument("--start-on-stdin", action="store_true", help="wait for a line before calls")
    a.add_argument("--kill-last", action="store_true", help="the last process ends by SIGKILL")
    a.add_argument("--exec", action="store_true",
                   help="the spawned processes make half of their calls, then start anew by exec")
    a.add_argument("--index", type=int, default=-1, help=argparse.SUPPRESS)
    return a.parse_args()


class Child:
    """Another process and two pipes: it reports that it holds, and is signalled to end."""

    def __init__(self, pid, says, stop, popen=None):
        self.pid, self.says, self.stop, self.popen = pid, says, stop, popen

    def wait(self):
        if self.popen:
            return self.popen.wait()
        return os.waitpid(self.pid, 0)[1]


def new_process(options, driver, index):
    return (HipProcess if options.hip else Process)(options, driver, index)


def work(options, driver, index, ready, go, process=None):
    """Everything that one process does. ready and go are the ends of pipes."""
    p = process
    if p is None:
        p = new_process(options, driver, index)
        p.prepare()
    p.run()
    if p.surprises:
        print("workload: process %d: unexpected results (result, where): %s"
              % (os.getpid(), p.surprises[:10]), file=sys.stderr)
    os.write(ready, b"!" if p.surprises else b".")
    os.read(go, 1)
    if options.kill_last and index == options.processes - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1 if p.surprises else 0


def fork(options, driver, index):
    says, ready = os.pipe()
    go, stop = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(says)
        os.close(stop)
        driver.reset()
        code = 1
        try:
            code = work(options, driver, index, ready, go)
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)  # without atexit, as multiprocessing ends its children
    os.close(ready)
    os.close(go)
    return Child(pid, says, stop)


def spawn(options, index):
    says, ready = os.pipe()
    go, stop = os.pipe()
    for end in (ready, go):
        os.set_inheritable(end, True)
    env = dict(os.environ, WORKLOAD_PIPES="%d %d" % (ready, go))
    args = [sys.executable, os.path.abspath(__file__)] + sys.argv[1:] + ["--index", str(index)]
    popen = subprocess.Popen(args, env=env, pass_fds=(ready, go), stdin=subprocess.DEVNULL)
    os.close(ready)
    os.close(go)
    return Child(popen.pid, says, stop, popen)


def say(**row):
    print(json.dumps(row), flush=True)


def main():
    options = arguments()
    os.makedirs(options.out, exist_ok=True)
    name = "simhip" if options.hip else "simcuda"
    os.environ[name.upper() + "_JOURNAL"] = os.path.abspath(options.out)
    os.environ[name.upper() + "_DEVICES"] = str(options.devices)
    os.environ[name.upper() + "_FAIL_EVERY"] = str(options.fail_every)
    driver = truth.Driver(os.path.abspath(options.hip or options.libcuda), options.out, name + "_tag")
    if options.index >= 0:
        ready, go = map(int, os.environ["WORKLOAD_PIPES"].split())
        if options.exec:
            options.calls //= 2
            if "WORKLOAD_SECOND" not in os.environ:
                process = new_process(options, driver, options.index)
                process.prepare()
                process.run()
                if process.surprises:
                    sys.exit("workload: before exec: unexpected results: %s" % process.surprises[:10])
                # The same process, but its memory is freed here.
                os.environ["WORKLOAD_SECOND"] = "1"
                os.execv(sys.executable, [sys.executable] + sys.argv)
        sys.exit(work(options, driver, options.index, ready, go))

    if options.start_on_stdin:
        say(ready=os.getpid())
        sys.stdin.readline()
    # The children: one forked before this process has started the driver, one
    # spawned, one forked when this process holds memory, and so on.
    children = []
    process = new_process(options, driver, 0)
    for index in range(1, options.processes):
        if index % 3 == 1:
            children.append(fork(options, driver, index))
        elif index % 3 == 2:
            children.append(spawn(options, index))
    process.prepare()
    before = process.worker(process, 0, random.Random(options.seed))
    for _ in range(50):
        before.drive(before.alloc())
        before.drive(before.vmm_create())
    before.drive(before.unwind())
    for index in range(3, options.processes, 3):
        children.append(fork(options, driver, index))

    ready, said = os.pipe()
    go, stop = os.pipe()
    pids = [os.getpid()] + [c.pid for c in children]
    answers = []

    def supervise():
        """Waits for all to hold, then for the word to end."""
        answers.append(os.read(ready, 1))
        answers.extend(os.read(c.says, 1) for c in children)
        if options.hold:
            say(holding=pids, ok=all(a == b"." for a in answers))
            sys.stdin.readline()
        for c in children:
            os.write(c.stop, b".")
        for c in children:
            c.wait()
        os.write(stop, b".")

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    code = work(options, driver, 0, said, go, process)
    supervisor.join()
    say(done=pids, ok=all(a == b"." for a in answers))
    sys.exit(0 if code == 0 and all(a == b"." for a in answers) else 1)


if __name__ == "__main__":
    main()
