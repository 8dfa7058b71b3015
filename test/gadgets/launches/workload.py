# SPDX-License-Identifier: Apache-2.0
"""Random launches, copies, waits and graphs on the simulated driver, or on HIP (hip_work.py).

Each call is made by Driver.invoke of ../exact/truth.py, which writes down what Python
stack it has; the driver's journal has the request. Prints a line of JSON when
all threads are done, and with --hold ends when its standard input does.
"""
import argparse
import ctypes
import json
import os
import random
import sys
import threading
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "exact"))
from truth import Driver  # noqa: E402

HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 3, 4
INJECTED = 999


class Location(ctypes.Structure):
    _fields_ = [("type", c_uint), ("id", c_int)]


class Copy2D(ctypes.Structure):
    _fields_ = ([(n, c_size_t) for n in ("sx", "sy")] + [("source", c_uint)]
                + [(n, c_uint64) for n in ("sh", "sd", "sa", "sp", "dx", "dy")] + [("to", c_uint)]
                + [(n, c_uint64) for n in ("dh", "dd", "da", "dp", "width", "height")])


class Copy3D(ctypes.Structure):
    _fields_ = ([(n, c_size_t) for n in ("sx", "sy", "sz", "sl")] + [("source", c_uint)]
                + [(n, c_uint64) for n in ("sh", "sd", "sa", "sc", "sp", "shh", "dx", "dy", "dz", "dl")]
                + [("to", c_uint)]
                + [(n, c_uint64) for n in ("dh", "dd", "da", "dc", "dp", "dhh", "width", "height", "depth")])


class LaunchConfig(ctypes.Structure):
    _fields_ = [("shape", c_uint * 7), ("stream", c_uint64), ("attributes", c_void_p), ("count", c_uint)]


class LaunchParams(ctypes.Structure):
    _fields_ = [("function", c_uint64), ("shape", c_uint * 7), ("stream", c_uint64), ("parameters", c_void_p)]


class Worker:
    def __init__(self, driver, options, index):
        self.driver, self.options = driver, options
        self.random = random.Random(options.seed * 1000 + index)
        self.index = index
        self.left = options.calls // options.threads
        self.failed = 0

    def call(self, name, *args):
        self.left -= 1
        result = self.driver.invoke(getattr(self.driver.lib, name), args)
        self.failed += result != 0
        return result

    def make(self, name, *args):
        """A call that makes a handle; again, where a failure was injected."""
        out = c_uint64()
        while self.call(name, byref(out), *args):
            pass
        return c_uint64(out.value)

    def start(self):
        lib = self.driver.lib
        self.contexts = [c_uint64() for _ in range(int(os.environ.get("SIMCUDA_DEVICES", "1")))]
        for device, context in enumerate(self.contexts):
            while lib.cuDevicePrimaryCtxRetain(byref(context), device):
                pass
        self.contexts += self.made()
        self.enter(self.contexts[0])
        self.module = self.make("cuModuleLoadData", c_char_p(b"image"))
        self.names = [b"_ZN4sim%dE%dv" % (self.index, i) for i in range(12)] + [b"shared_%d" % i for i in range(4)]
        self.functions = [self.make("cuModuleGetFunction", self.module, c_char_p(n)) for n in self.names]
        kernel = self.make("cuLibraryGetKernel", self.module, c_char_p(b"of_a_library"))
        self.functions.append(self.make("cuKernelGetFunction", kernel))
        self.functions.append(kernel)
        self.streams = [c_uint64(0), c_uint64(1), c_uint64(2)]
        for _ in range(4):
            s = c_uint64()
            lib.cuStreamCreate(byref(s), 1)
            self.streams.append(s)
        self.events = []
        for _ in range(4):
            e = c_uint64()
            lib.cuEventCreate(byref(e), 0)
            self.events.append(e)
        self.graphs = []

    def made(self):
        """A context besides the devices' primary ones."""
        lib, context = self.driver.lib, c_uint64()
        while lib.cuCtxCreate_v2(byref(context), 0, len(self.contexts) - 1):
            pass
        while lib.cuCtxPopCurrent_v2(None):
            pass
        return [context]

    def enter(self, context):
        while self.driver.lib.cuCtxSetCurrent(context):
            pass

    def elsewhere(self):
        """A few calls in another context, or in none."""
        lib, r = self.driver.lib, self.random
        kind, context = r.randrange(5), r.choice(self.contexts)
        if kind == 0:
            self.enter(context)
            return
        if kind == 1:
            self.enter(None)
        elif kind == 2:
            context = c_uint64()
            if lib.cuCtxCreate_v2(byref(context), 0, r.randrange(len(self.contexts) - 1)):
                return
        elif lib.cuCtxPushCurrent_v2(context):
            return
        for _ in range(r.randrange(5)):
            r.choice([self.launch, self.copy, self.wait])()
        if kind == 1:
            self.enter(context)
        elif kind == 2:
            while lib.cuCtxDestroy_v2(context):
                pass
        else:
            while lib.cuCtxPopCurrent_v2(None):
                pass

    def stream(self):
        return self.random.choice(self.streams)

    def form(self, name):
        """Either form of a function of a stream."""
        return name + self.random.choice(["", "_ptsz"])

    def size(self):
        return c_size_t(self.random.randrange(1, 1 << self.random.randrange(1, 26)))

    def shape(self):
        r = self.random
        return [r.choice([1, 2, 7, 80]), r.choice([1, 1, 3]), 1, r.choice([32, 128, 256]), r.choice([1, 4]), 1,
                r.choice([0, 0, 1024, 49152])]

    def launch(self):
        r = self.random
        kind = r.randrange(10)
        f, s = r.choice(self.functions), self.stream()
        if kind == 0:
            config = LaunchConfig((c_uint * 7)(*self.shape()), s.value, None, 0)
            self.call(self.form("cuLaunchKernelEx"), byref(config), f, None, None)
        elif kind == 1:
            params = (LaunchParams * 2)()
            for p in params:
                p.function, p.shape, p.stream = f.value, (c_uint * 7)(*self.shape()), s.value
            params[1].shape = params[0].shape
            self.call("cuLaunchCooperativeKernelMultiDevice", params, c_uint(2), c_uint(0))
        elif kind == 2:
            self.call(self.form("cuLaunchHostFunc"), s, c_void_p(0x1000 + 16 * r.randrange(3)), None)
        elif kind == 3:
            self.call(self.form("cuLaunchKernel"), c_uint64(0x77770000), *map(c_uint, self.shape()), s, None, None)
        else:
            name = "cuLaunchCooperativeKernel" if kind == 4 else "cuLaunchKernel"
            more = () if kind == 4 else (None,)
            self.call(self.form(name), f, *map(c_uint, self.shape()), s, None, *more)

    def copy(self):
        r = self.random
        p, n, s = c_uint64(4096), self.size(), self.stream()
        kind = r.randrange(10)
        if kind == 0:
            d = Copy2D(source=r.choice([HOST, DEVICE, ARRAY, UNIFIED]), to=r.choice([HOST, DEVICE, ARRAY]),
                       width=n.value, height=r.randrange(1, 9))
            self.call(*r.choice([(self.form("cuMemcpy2DAsync_v2"), byref(d), s), ("cuMemcpy2D_v2", byref(d)),
                                 ("cuMemcpy2DUnaligned_v2_ptds", byref(d))]))
        elif kind == 1:
            d = Copy3D(source=r.choice([HOST, DEVICE, ARRAY]), to=r.choice([HOST, DEVICE, ARRAY]),
                       width=n.value, height=r.randrange(1, 9), depth=r.randrange(1, 4))
            self.call(*r.choice([(self.form("cuMemcpy3DAsync_v2"), byref(d), s), ("cuMemcpy3D_v2", byref(d)),
                                 ("cuMemcpy3DPeer", byref(d)), (self.form("cuMemcpy3DPeerAsync"), byref(d), s)]))
        elif kind == 2:
            self.call(*r.choice([("cuMemcpyAtoA_v2", p, n, p, n, n), ("cuMemcpyDtoA_v2", p, n, p, n),
                                 ("cuMemcpyAtoD_v2", p, p, n, n), ("cuMemcpyHtoA_v2_ptds", p, n, p, n),
                                 ("cuMemcpyPeer", p, p, p, p, n), ("cuMemcpyPeerAsync", p, p, p, p, n, s),
                                 ("cuMemcpyHtoAAsync_v2", p, n, p, n, s), ("cuMemcpyAtoHAsync_v2", p, p, n, n, s)]))
        elif kind == 3:
            self.call(*r.choice([(self.form("cuMemPrefetchAsync"), p, n, c_int(r.choice([-1, 0, 1])), s),
                                 (self.form("cuMemPrefetchAsync_v2"), p, n, Location(r.randrange(1, 5), 0), c_uint(0), s)]))
        elif kind == 4:
            bits = r.choice([8, 16, 32])
            self.call(*r.choice([("cuMemsetD%d_v2" % bits, p, c_uint(0), n), (self.form("cuMemsetD%dAsync" % bits), p, c_uint(0), n, s),
                                 ("cuMemsetD2D%d_v2" % bits, p, n, c_uint(0), n, c_size_t(3)),
                                 (self.form("cuMemsetD2D%dAsync" % bits), p, n, c_uint(0), n, c_size_t(5), s)]))
        elif kind == 5:
            self.call(r.choice(["cuMemcpy", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2_ptds"]), p, p, n)
        elif kind == 6:
            name = r.choice(["cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2"])
            self.call(self.form(name), *self.batch(), *([None] if name == "cuMemcpyBatchAsync" else []), s)
        elif kind == 7:
            self.call(self.form("cuMemcpyWithAttributesAsync"), p, p, n, None, s)
        else:
            self.call(self.form(r.choice(["cuMemcpyAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"])), p, p, n, s)

    def batch(self):
        """The arguments of many copies but for the last ones; some have none."""
        n = self.random.choice([0, 1, 2, 15, 16, 17, 33, 640, 6400])
        addresses = (c_uint64 * n)(*[4096] * n)
        return addresses, addresses, (c_size_t * n)(*[self.size().value for _ in range(n)]), c_size_t(n), None, None, c_size_t(1)

    def wait(self):
        r = self.random
        s, e = self.stream(), r.choice(self.events)
        self.call(*r.choice([(self.form("cuStreamSynchronize"), s), ("cuCtxSynchronize",),
                             ("cuCtxSynchronize_v2", r.choice([c_uint64(0), *self.contexts])), (self.form("cuStreamQuery"), s),
                             ("cuEventSynchronize", e), ("cuEventQuery", e), (self.form("cuEventRecord"), e, s),
                             (self.form("cuStreamWaitEvent"), s, e, c_uint(0))]))

    def capture(self):
        """A graph captured from one or two streams, launched a few times; or a capture that is lost."""
        r, s, other, e = self.random, self.streams[3], self.streams[4], self.events[0]
        if r.randrange(3) == 0:
            to = self.make("cuGraphCreate", c_uint(0))
            self.add_nodes(to)
            begun = self.call(self.form("cuStreamBeginCaptureToGraph"), s, to, None, None, c_size_t(0), c_int(0))
        else:
            begun = self.call("cuStreamBeginCapture_v2", s, c_int(0))
        if begun:
            return
        for _ in range(r.randrange(4)):
            self.call("cuLaunchKernel", self.functions[0], *map(c_uint, self.shape()), s, None, None)
        # The other stream was part of an earlier capture, in which it may not be now.
        if r.randrange(2) or not self.call("cuEventRecord", e, s) and not self.call("cuStreamWaitEvent", other, e, c_uint(0)):
            self.call("cuMemcpyHtoDAsync_v2", c_uint64(1), c_uint64(1), self.size(), other)
        self.call("cuLaunchKernel", self.functions[1], *map(c_uint, self.shape()), self.streams[5], None, None)
        if r.randrange(3) == 0:
            self.call("cuStreamSynchronize", s)  # nothing that can be captured
        graph, result = c_uint64(), INJECTED
        while result == INJECTED:
            result = self.call("cuStreamEndCapture", s, byref(graph))
        if result == 0:
            self.run_graph(graph)
        else:
            self.call("cuLaunchKernel", self.functions[2], *map(c_uint, self.shape()), s, None, None)

    def build(self):
        graph = self.make("cuGraphCreate", c_uint(0))
        self.add_nodes(graph)
        self.run_graph(graph)

    def add_nodes(self, graph):
        node = c_uint64()
        for _ in range(self.random.randrange(1, 5)):
            self.call(self.random.choice(["cuGraphAddKernelNode_v2", "cuGraphAddMemcpyNode", "cuGraphAddHostNode"]),
                      byref(node), graph, None, c_size_t(0), None)

    def run_graph(self, graph):
        graphs = [graph]
        if self.random.randrange(4) == 0:
            graphs.append(self.make("cuGraphClone", graph))
        run = self.make("cuGraphInstantiateWithFlags", graphs[-1], c_uint64(0))
        for _ in range(self.random.randrange(1, 4)):
            self.call(self.form("cuGraphLaunch"), run, self.stream())
        self.driver.lib.cuGraphExecDestroy(run)
        for graph in graphs:  # their handles are reused
            self.driver.lib.cuGraphDestroy(graph)

    def modules(self):
        """A module that is unloaded: its handles are reused."""
        module = self.make("cuModuleLoadDataEx", c_char_p(b"image"), c_uint(0), None, None)
        name = b"short_lived_%d" % self.random.randrange(50)
        f = self.make("cuModuleGetFunction", module, c_char_p(name))
        self.call("cuLaunchKernel", f, *map(c_uint, self.shape()), self.stream(), None, None)
        back = c_char_p()
        if not self.call("cuFuncGetName", byref(back), f) and back.value != name:
            raise SystemExit("the driver says %r for %r" % (back.value, name))
        while self.call("cuModuleUnload", module):
            pass

    def deeper(self, n):
        return self.step() if n == 0 else self.deeper(n - 1)

    def step(self):
        n = self.random.random()
        if n < 0.5:
            self.launch()
        elif n < 0.75:
            self.copy()
        elif n < 0.96:
            self.wait()
        elif n < 0.98:
            self.modules()
        elif n < 0.985:
            self.capture()
        elif n < 0.99:
            self.build()
        else:
            self.elsewhere()

    def run(self):
        self.start()
        while self.left > 0:
            self.deeper(self.random.randrange(3))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--libcuda")
    p.add_argument("--hip", help="a libamdhip64 instead")
    p.add_argument("--out", required=True)
    p.add_argument("--calls", type=int, default=40000)
    p.add_argument("--threads", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    options = p.parse_args()
    if options.hip:
        from hip_work import HipWorker as Workers
        os.environ["SIMHIP_JOURNAL"] = options.out
        driver = Driver(options.hip, options.out, tag="simhip_tag")
    else:
        Workers = Worker
        os.environ["SIMCUDA_JOURNAL"] = options.out
        driver = Driver(options.libcuda, options.out)
        driver.lib.cuInit(0)
    workers = [Workers(driver, options, i) for i in range(options.threads)]
    threads = [threading.Thread(target=w.run) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    (driver.lib.simhip_flush if options.hip else driver.lib.simcuda_flush)()
    print(json.dumps({"holding": [os.getpid()], "failed": sum(w.failed for w in workers)}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
