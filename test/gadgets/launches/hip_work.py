# SPDX-License-Identifier: Apache-2.0
"""The same workload on HIP: each of its functions in bpf/hip/launch_apis.h."""
import ctypes
import os
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

from __main__ import INJECTED, LaunchConfig, Location, Worker

HOST, DEVICE, ARRAY, UNIFIED = 1, 2, 10, 11
KINDS = [0, 1, 2, 3, 4, 1024]
NODES = ["Kernel", "Memcpy", "Memset", "Host", "ChildGraph", "Empty", "EventRecord", "EventWait", "MemAlloc", "MemFree",
         "BatchMemOp", ""]
OTHER_NODES = ["hipGraphAddMemcpyNode1D", "hipGraphAddMemcpyNodeFromSymbol", "hipGraphAddMemcpyNodeToSymbol",
               "hipDrvGraphAddMemcpyNode", "hipDrvGraphAddMemsetNode", "hipDrvGraphAddMemFreeNode"]


class Dim3(ctypes.Structure):
    _fields_ = [(n, c_uint) for n in "xyz"]


class PitchedPtr(ctypes.Structure):
    _fields_ = [(n, c_size_t) for n in ("p", "pitch", "x", "y")]


class Extent(ctypes.Structure):
    _fields_ = [(n, c_size_t) for n in ("width", "height", "depth")]


class Copy2D(ctypes.Structure):
    _fields_ = ([(n, c_size_t) for n in ("sx", "sy")] + [("source", c_uint)]
                + [(n, c_uint64) for n in ("sh", "sd", "sa", "sp", "dx", "dy")] + [("to", c_uint)]
                + [(n, c_uint64) for n in ("dh", "dd", "da", "dp", "width", "height")])


class Copy3D(ctypes.Structure):
    _fields_ = ([(n, c_size_t) for n in ("sx", "sy", "sz", "sl")] + [("source", c_uint)]
                + [(n, c_uint64) for n in ("sh", "sd", "sa", "sp", "shh", "dx", "dy", "dz", "dl")] + [("to", c_uint)]
                + [(n, c_uint64) for n in ("dh", "dd", "da", "dp", "dhh", "width", "height", "depth")])


class Parms3D(ctypes.Structure):
    _fields_ = [("source", c_uint64 * 8), ("to", c_uint64 * 8), ("extent", Extent), ("kind", c_uint)]


class HostParams(ctypes.Structure):
    _fields_ = [("function", c_uint64), ("grid", Dim3), ("block", Dim3), ("args", c_void_p), ("shared", c_size_t),
                ("stream", c_uint64)]


class FunctionParams(ctypes.Structure):
    _fields_ = [("function", c_uint64), ("shape", c_uint * 7), ("stream", c_uint64), ("parameters", c_void_p)]


class HipWorker(Worker):
    """One thread, on device 0 from its start. Kernels are handles of the program, which it
    registers, or functions of a module."""

    names_alive = []  # the gadget reads a name at the first launch

    def start(self):
        lib = self.driver.lib
        self.devices = int(os.environ["SIMHIP_DEVICES"])
        self.contexts = {}
        self.module = self.make("hipModuleLoadData", c_char_p(b"image"))
        names = [b"_ZN4sim%dE%dv" % (self.index, i) for i in range(8)] + [b"shared_%d" % i for i in range(4)]
        self.functions = [self.make("hipModuleGetFunction", self.module, c_char_p(n)) for n in names]
        register = getattr(lib, "__hipRegisterFunction")
        self.handles = []
        for i, name in enumerate([b"_Z3reg%dv" % i for i in range(8)] + [b"shared_0", b"x" * 2000]):
            name = ctypes.create_string_buffer(name)
            self.names_alive.append(name)
            self.handles.append(c_uint64(0x500000000000 + self.index * 4096 + i * 8))
            register(None, self.handles[-1], name, name, c_uint(0), None, None, None, None, None)
        self.handles.append(c_uint64(0x510000000000 + self.index))  # nobody registered it
        self.streams = [c_uint64(0), c_uint64(1), c_uint64(2)]
        for i in range(4):
            s = c_uint64()
            lib.hipStreamCreateWithFlags(byref(s), 1) if i else lib.hipStreamCreate(byref(s))
            self.streams.append(s)
        self.events = []
        for _ in range(4):
            e = c_uint64()
            lib.hipEventCreate(byref(e))
            self.events.append(e)

    def elsewhere(self):
        """Another device."""
        lib, r = self.driver.lib, self.random
        device = r.randrange(self.devices)
        kind = r.randrange(3)
        if kind == 0 and device not in self.contexts:
            context = c_uint64()
            if not r.choice([lambda: lib.hipCtxCreate(byref(context), 0, device),
                             lambda: lib.hipDevicePrimaryCtxRetain(byref(context), device)])():
                self.contexts[device] = context
        if device in self.contexts:
            r.choice([lib.hipCtxSetCurrent, lib.hipCtxPushCurrent])(self.contexts[device])
        elif kind == 1:
            lib.hipCtxSetCurrent(c_uint64(0))
        else:
            lib.hipSetDevice(c_int(device))
        lib.hipSetDevice(c_int(self.devices))  # fails, and changes nothing

    def form(self, name):
        return name + self.random.choice(["", "_spt"])

    def items(self, shape):
        """A grid in work items whose last blocks may be smaller."""
        return [n * b - self.random.randrange(b) for n, b in zip(shape[:3], shape[3:6])] + shape[3:]

    def launch(self):
        r = self.random
        kind = r.randrange(13)
        f, h, s, shape = r.choice(self.functions), r.choice(self.handles), self.stream(), self.shape()
        grid, block, shared = Dim3(*shape[:3]), Dim3(*shape[3:6]), shape[6]
        if kind < 4:
            self.call(self.form("hipLaunchKernel"), h, grid, block, None, c_size_t(shared), s)
        elif kind == 4:
            self.call("hipExtLaunchKernel", h, grid, block, None, c_size_t(shared), s, None, None, c_int(0))
        elif kind == 5:
            self.call(self.form("hipLaunchCooperativeKernel"), h, grid, block, None, c_uint(shared), s)
        elif kind == 6:
            self.call("hipModuleLaunchKernel", f, *map(c_uint, shape), s, None, None)
        elif kind == 7:
            self.call("hipModuleLaunchCooperativeKernel", f, *map(c_uint, shape), s, None)
        elif kind == 8:
            name, more = r.choice([("hipExtModuleLaunchKernel", (c_uint(0),)), ("hipHccModuleLaunchKernel", ())])
            self.call(name, f, *map(c_uint, self.items(shape)[:6]), c_size_t(shared), s, None, None, None, None, *more)
        elif kind == 9:
            params = (HostParams * 2)(*[HostParams(h.value, grid, block, 1, shared, s.value) for _ in range(2)])
            self.call(r.choice(["hipLaunchCooperativeKernelMultiDevice", "hipExtLaunchMultiKernelMultiDevice"]),
                      params, c_int(2), c_uint(0))
        elif kind == 10:
            params = (FunctionParams * 2)(*[FunctionParams(f.value, (c_uint * 7)(*shape), s.value, 1) for _ in range(2)])
            self.call("hipModuleLaunchCooperativeKernelMultiDevice", params, c_uint(2), c_uint(0))
        elif kind == 11:
            config = byref(LaunchConfig((c_uint * 7)(*shape), s.value, None, 0))
            self.call(*r.choice([("hipLaunchKernelExC", config, h, None), ("hipDrvLaunchKernelEx", config, f, None, None)]))
        else:
            self.call(self.form("hipLaunchHostFunc"), s, c_void_p(0x1000 + 16 * r.randrange(3)), None)

    def copy(self):
        r = self.random
        p, n, s, k, h = c_uint64(4096), self.size(), self.stream(), c_uint(r.choice(KINDS)), c_size_t(r.randrange(1, 9))
        kind = r.randrange(8)
        if kind == 0:
            d = Copy2D(source=r.choice([HOST, DEVICE, ARRAY, UNIFIED]), to=r.choice([HOST, DEVICE, ARRAY]),
                       width=n.value, height=h.value)
            self.call(*r.choice([("hipMemcpyParam2DAsync", byref(d), s), ("hipMemcpyParam2D", byref(d)),
                                 ("hipDrvMemcpy2DUnaligned", byref(d))]))
        elif kind == 1:
            d = Copy3D(source=r.choice([HOST, DEVICE, ARRAY]), to=r.choice([HOST, DEVICE, ARRAY, UNIFIED]),
                       width=n.value, height=h.value, depth=r.randrange(1, 4))
            q = Parms3D(extent=Extent(n.value, h.value, r.randrange(1, 4)), kind=k.value)
            self.call(*r.choice([("hipDrvMemcpy3DAsync", byref(d), s), ("hipDrvMemcpy3D", byref(d)),
                                 (self.form("hipMemcpy3D"), byref(q)), (self.form("hipMemcpy3DAsync"), byref(q), s)]))
        elif kind == 2:
            self.call(*r.choice([("hipMemcpyAtoA", p, n, p, n, n), ("hipMemcpyDtoA", p, n, p, n),
                                 ("hipMemcpyAtoD", p, p, n, n), ("hipMemcpyHtoA", p, n, p, n), ("hipMemcpyAtoH", p, p, n, n),
                                 ("hipMemcpyPeer", p, c_int(0), p, c_int(1), n),
                                 ("hipMemcpyPeerAsync", p, c_int(0), p, c_int(1), n, s),
                                 ("hipMemcpyHtoAAsync", p, n, p, n, s), ("hipMemcpyAtoHAsync", p, p, n, n, s)]))
        elif kind == 3:
            name = r.choice(["ToSymbol", "FromSymbol"])
            self.call(*r.choice([(self.form("hipMemcpy" + name), p, p, n, n, k),
                                 (self.form("hipMemcpy" + name + "Async"), p, p, n, n, k, s),
                                 ("hipMemcpyToArray", p, n, n, p, n, k), (self.form("hipMemcpyFromArray"), p, p, n, n, n, k),
                                 ("hipMemPrefetchAsync", p, n, c_int(r.choice([-1, 0, 1])), s),
                                 ("hipMemPrefetchAsync_v2", p, n, Location(r.randrange(1, 5), 0), c_uint(0), s),
                                 ("hipMemcpyBatchAsync", *self.batch(), None, s)]))
        elif kind == 4:
            name = r.choice(["ToArray", "FromArray"])
            self.call(*r.choice([(self.form("hipMemcpy2D"), p, n, p, n, n, h, k),
                                 (self.form("hipMemcpy2DAsync"), p, n, p, n, n, h, k, s),
                                 (self.form("hipMemcpy2D" + name), p, n, n, p, n, n, h, k),
                                 (self.form("hipMemcpy2D" + name + "Async"), p, n, n, p, n, n, h, k, s),
                                 ("hipMemcpy2DArrayToArray", p, n, n, p, n, n, n, h, k)]))
        elif kind == 5:
            self.set(p, n, s, h)
        else:
            self.call(*r.choice([(self.form("hipMemcpy"), p, p, n, k), (self.form("hipMemcpyAsync"), p, p, n, k, s),
                                 ("hipMemcpyWithStream", p, p, n, k, s), ("hipMemcpyHtoD", p, p, n), ("hipMemcpyDtoH", p, p, n),
                                 ("hipMemcpyDtoD", p, p, n), ("hipMemcpyHtoDAsync", p, p, n, s),
                                 ("hipMemcpyDtoHAsync", p, p, n, s), ("hipMemcpyDtoDAsync", p, p, n, s)]))

    def set(self, p, n, s, h):
        bits = self.random.choice([8, 16, 32])
        box = PitchedPtr(4096, 512, 1, 1), c_int(0), Extent(n.value, h.value, 3)
        self.call(*self.random.choice([
            ("hipMemsetD2D%d" % bits, p, n, c_uint(0), n, h), ("hipMemsetD2D%dAsync" % bits, p, n, c_uint(0), n, h, s),
            ("hipMemsetD%d" % bits, p, c_uint(0), n), ("hipMemsetD%dAsync" % bits, p, c_uint(0), n, s),
            (self.form("hipMemset"), p, c_int(0), n), (self.form("hipMemsetAsync"), p, c_int(0), n, s),
            (self.form("hipMemset2D"), p, n, c_int(0), n, h), (self.form("hipMemset2DAsync"), p, n, c_int(0), n, h, s),
            (self.form("hipMemset3D"), *box), (self.form("hipMemset3DAsync"), *box, s)]))

    def wait(self):
        r = self.random
        s, e = self.stream(), r.choice(self.events)
        self.call(*r.choice([(self.form("hipStreamSynchronize"), s), ("hipDeviceSynchronize",), ("hipCtxSynchronize",),
                             (self.form("hipStreamQuery"), s), ("hipEventSynchronize", e), ("hipEventQuery", e),
                             (self.form("hipEventRecord"), e, s), ("hipEventRecordWithFlags", e, s, c_uint(0)),
                             (self.form("hipStreamWaitEvent"), s, e, c_uint(0))]))

    def capture(self):
        r, s, other, e = self.random, self.streams[3], self.streams[4], self.events[0]
        if r.randrange(3) == 0:
            to = self.make("hipGraphCreate", c_uint(0))
            self.add_nodes(to)
            begun = self.call("hipStreamBeginCaptureToGraph", s, to, None, None, c_size_t(0), c_int(0))
        else:
            begun = self.call(self.form("hipStreamBeginCapture"), s, c_int(0))
        if begun:
            return
        for _ in range(r.randrange(4)):
            self.call("hipModuleLaunchKernel", self.functions[0], *map(c_uint, self.shape()), s, None, None)
        # As in workload.py.
        if r.randrange(2) or not self.call("hipEventRecord", e, s) and not self.call("hipStreamWaitEvent", other, e, c_uint(0)):
            self.call("hipMemcpyAsync", c_uint64(1), c_uint64(1), self.size(), c_uint(1), other)
        self.call("hipLaunchKernel", self.handles[1], Dim3(1, 1, 1), Dim3(64, 1, 1), None, c_size_t(0), self.streams[5])
        if r.randrange(3) == 0:
            self.call("hipStreamSynchronize", s)
        graph, result = c_uint64(), INJECTED
        while result == INJECTED:
            result = self.call(self.form("hipStreamEndCapture"), s, byref(graph))
        if result == 0:
            self.run_graph(graph)
        else:
            self.call("hipModuleLaunchKernel", self.functions[2], *map(c_uint, self.shape()), s, None, None)

    def build(self):
        graph = self.make("hipGraphCreate", c_uint(0))
        self.add_nodes(graph)
        self.run_graph(graph)

    def add_nodes(self, graph):
        node = c_uint64()
        names = ["hipGraphAdd%sNode" % n for n in NODES] + OTHER_NODES
        for _ in range(self.random.randrange(1, 5)):
            self.call(self.random.choice(names), byref(node), graph, None, c_size_t(0), None)

    def run_graph(self, graph):
        name, *args = self.random.choice([("hipGraphInstantiateWithFlags", c_ulonglong(0)), ("hipGraphInstantiateWithParams", None),
                                          ("hipGraphInstantiate", None, None, c_size_t(0))])
        graphs = [graph]
        if self.random.randrange(4) == 0:
            graphs.append(self.make("hipGraphClone", graph))
        run = self.make(name, graphs[-1], *args)
        for _ in range(self.random.randrange(1, 4)):
            self.call(self.form("hipGraphLaunch"), run, self.stream())
        self.driver.lib.hipGraphExecDestroy(run)
        for graph in graphs:
            self.driver.lib.hipGraphDestroy(graph)

    def modules(self):
        name, *args = self.random.choice([("hipModuleLoadDataEx", c_char_p(b"image"), c_uint(0), None, None),
                                          ("hipModuleLoad", c_char_p(b"file")), ("hipModuleLoadFatBinary", c_char_p(b"image"))])
        module = self.make(name, *args)
        f = self.make("hipModuleGetFunction", module, c_char_p(b"short_lived_%d" % self.random.randrange(50)))
        self.call("hipModuleLaunchKernel", f, *map(c_uint, self.shape()), self.stream(), None, None)
        while self.call("hipModuleUnload", module):
            pass
        self.call("hipLinkComplete", c_uint64(1), byref(c_void_p()), byref(c_size_t()))
        name = self.random.choice(["hipLibraryLoadData", "hipLibraryLoadFromFile"])
        library = self.make(name, c_char_p(b"image"), None, None, c_uint(0), None, None, c_uint(0))
        f = self.make("hipLibraryGetKernel", library, c_char_p(b"of_a_library_%d" % self.random.randrange(50)))
        self.call("hipModuleLaunchKernel", f, *map(c_uint, self.shape()), self.stream(), None, None)
        while self.call("hipLibraryUnload", library):
            pass
