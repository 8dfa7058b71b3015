# SPDX-License-Identifier: Apache-2.0
"""Calls the simulated CUDA driver and writes down which Python stack did it.

Each distinct stack gets a number, a tag. The driver writes the tag into its
journal; this module writes the stack of each tag into a file next to it:
DIR/<pid>-<start>-<image>.truth, one JSON object per line:

    {"pid": 7, "start": 1234, "image": 0, "tag": 1,
     "frames": [["invoke", "/a/truth.py", 99], …]}

Frames are leaf first: qualified name, file, line. "start" is field 22 of
/proc/PID/stat, "image" counts the execs of a process, both as in the journal's name.
"""
import ctypes
import inspect
import json
import os
import sys
import threading

_getframe = sys._getframe


def start_ticks():
    with open("/proc/self/stat") as f:
        return int(f.read().rpartition(")")[2].split()[19])


if sys.version_info >= (3, 11):
    # The name as CPython keeps it in the code object.
    def _identity(frame):
        return frame.f_code, frame.f_lineno

    def _qualname(frame):
        return frame.f_code.co_qualname
else:
    # Before 3.11 a code object knows only its name: a method's class is looked up by
    # its `self`, so it is a part of the stack's identity. Class methods have none.
    def _qualname(frame):
        code = frame.f_code
        if not code.co_argcount or code.co_varnames[0] != "self":
            return code.co_name
        cls = type(frame.f_locals["self"])
        for base in cls.__mro__ if not code.co_flags & inspect.CO_NESTED else []:
            found = base.__dict__.get(code.co_name)
            if getattr(found, "__code__", None) is code:
                return found.__qualname__
        return cls.__name__ + "." + code.co_name

    def _identity(frame):
        return frame.f_code, frame.f_lineno, _qualname(frame)


class Driver:
    """The library, and the tags of this process."""

    def __init__(self, path, directory=None, tag="simcuda_tag"):
        self.path = path
        self.directory = directory
        self.lib = ctypes.CDLL(path)
        self._set_tag = getattr(self.lib, tag)
        self._set_tag.argtypes = [ctypes.c_uint64]
        self._set_tag.restype = None
        self.reset()

    def reset(self):
        """Call this in the child of a fork: its tags and its file are new."""
        self._tags = {}
        self._lock = threading.Lock()
        self._file = None
        self.calls = 0

    def tag(self, frame):
        """Finds or makes the tag of a stack and gives it to the driver."""
        key = []
        f = frame
        while f is not None:
            key.append(_identity(f))
            f = f.f_back
        key = tuple(key)
        tag = self._tags.get(key)
        if tag is None:
            tag = self._new(key, frame)
        self._set_tag(tag)
        self.calls += 1

    def _new(self, key, frame):
        with self._lock:
            tag = self._tags.get(key)
            if tag is not None:
                return tag
            tag = len(self._tags) + 1
            if self.directory:
                self._write(tag, frame)
            self._tags[key] = tag
            return tag

    def _open(self):
        process = {"pid": os.getpid(), "start": start_ticks(), "image": 0}
        while self._file is None:
            path = os.path.join(self.directory, "{pid}-{start}-{image}.truth".format(**process))
            try:
                self._file = open(path, "x")
            except FileExistsError:
                process["image"] += 1  # this process was another program before
        self._process = process

    def _write(self, tag, frame):
        if self._file is None:
            self._open()
        frames = []
        while frame is not None:
            frames.append([_qualname(frame), frame.f_code.co_filename, frame.f_lineno])
            frame = frame.f_back
        row = dict(self._process, tag=tag, frames=frames)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()  # a process may die by SIGKILL right after its call

    def invoke(self, fn, args):
        """Makes one driver call. The stack is read and the call is made on the
        same line, so the line of this frame is the same for both."""
        self.tag(_getframe()); return fn(*args)  # noqa: E702
