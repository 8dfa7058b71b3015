# SPDX-License-Identifier: Apache-2.0
"""Equal runs: in each a separate function launches a separate kernel and
copies, from three lines, the last of which mostly copies next to nothing. Arguments: libcuda.so.1, runs, calls of each line in a run.
Prints a line when it is done and ends with its standard input.
"""
import ctypes
import random
import sys
from ctypes import byref, c_char_p, c_size_t, c_uint, c_uint64

RUN = """
def run_{0}(launch, copy, back, calls, rng):
    for i in range(calls):
        launch(kernel, x, one, one, x, one, one, zero, stream, None, None)
        copy(stream, stream, c_size_t(rng.randrange(1, 60000)), stream)
        back(stream, stream, c_size_t(50000 if rng.random() < 0.01 else 16), stream)
"""


def main():
    cuda = ctypes.CDLL(sys.argv[1])
    cuda.cuInit(0)
    context, module = c_uint64(), c_uint64()
    cuda.cuDevicePrimaryCtxRetain(byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    cuda.cuModuleLoadData(byref(module), c_char_p(b"image"))
    rng = random.Random(1)
    for n in range(int(sys.argv[2])):
        kernel = c_uint64()
        cuda.cuModuleGetFunction(byref(kernel), module, c_char_p(b"kernel_%d" % n))
        scope = dict(kernel=kernel, x=c_uint(32), one=c_uint(1), zero=c_uint(0), stream=c_uint64(0), c_size_t=c_size_t)
        exec(compile(RUN.format(n), "run.py", "exec"), scope)
        scope["run_%d" % n](cuda.cuLaunchKernel, cuda.cuMemcpyHtoDAsync_v2, cuda.cuMemcpyDtoHAsync_v2, int(sys.argv[3]), rng)
    cuda.simcuda_flush()
    print("done", flush=True)
    sys.stdin.readline()


main()
