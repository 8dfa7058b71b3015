#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads the weights of a model in three phases, as many servers do it: from disk into
the page cache, from there by page faults into pinned memory, from there to the GPU.
"""
import argparse
import ctypes
import mmap
import os
import time

import gpu

CHUNK = 4 << 20


class Loader:
    def __init__(self, path, driver, link):
        self.path, self.driver, self.link = path, driver, link
        self.nbytes = os.path.getsize(path) // CHUNK * CHUNK
        self.pinned = driver.pinned(self.nbytes)
        self.stream = driver.stream()
        self.buffer = memoryview(bytearray(CHUNK))

    def read_from_disk(self):
        """Reads ahead, so that the faults below find pages."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            done = 0
            while done < self.nbytes:
                done += os.preadv(fd, [self.buffer], done)
        finally:
            os.close(fd)
        return done

    def copy_to_pinned(self):
        """Copies from the mapped file; each page is a fault."""
        with open(self.path, "rb") as f:
            self.mapped = mmap.mmap(f.fileno(), self.nbytes, access=mmap.ACCESS_COPY)
            source = ctypes.addressof(ctypes.c_char.from_buffer(self.mapped))
            for at in range(0, self.nbytes, CHUNK):
                ctypes.memmove(self.pinned + at, source + at, CHUNK)
        return self.nbytes

    def copy_to_gpu(self):
        memory = self.driver.memory(self.nbytes)
        for at in range(0, self.nbytes, CHUNK):
            self.driver.to_device(memory + at, self.pinned + at, CHUNK, self.stream)
            if self.link:
                time.sleep(CHUNK / self.link / 1e9)
            self.driver.synchronize(self.stream)
        return self.nbytes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="the weights; made up where there are none")
    parser.add_argument("--mib", type=int, default=256, help="size of a file that is made up")
    parser.add_argument("--link", type=float, default=0, metavar="GB/S",
                        help="how fast copies are, where the simulated driver's take no time")
    parser.add_argument("--driver", help="path of libcuda.so.1")
    parser.add_argument("--journal", help="write what was done and when to this file")
    args = parser.parse_args()
    if not os.path.exists(args.file):
        with open(args.file, "wb") as f:
            for _ in range(args.mib):
                f.write(os.urandom(1 << 20))
            os.fsync(f.fileno())
    fd = os.open(args.file, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # as after a restart of the machine
    os.close(fd)
    journal = gpu.Journal(args.journal)
    loader = Loader(args.file, gpu.Driver(args.driver), args.link)
    gpu.wait_for_tracer()
    for phase in (loader.read_from_disk, loader.copy_to_pinned, loader.copy_to_gpu):
        start = gpu.now()
        nbytes = phase()
        journal.note(phase.__name__, start, bytes=nbytes)
    journal.close()
    gpu.wait_for_tracer()


if __name__ == "__main__":
    main()
