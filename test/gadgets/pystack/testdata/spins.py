# SPDX-License-Identifier: Apache-2.0
#
# spins.py LIBRARY: runs the scenes of spins.cpp. Each line of input is WHO HOW MS: who runs them,
# python (this program's threads) or native (the library's); how, compute or sleep; and how long. The
# reply is what each stack is, from the library's function to the thread's start: for sleeping threads
# at once, else at the end.
import ctypes
import sys
import threading
import time

library = ctypes.CDLL(sys.argv[1])
library.what_was.restype = ctypes.c_char_p
scenes = library.scenes()


def of_python(n, how, ms):
    library.run(n, how, ms)


def run(who, how, ms):
    if who == "native":
        library.start_threads(how, ms)
    elif how:
        for n in range(scenes):
            threading.Thread(target=of_python, args=(n, how, ms), daemon=True).start()
    else:
        for n in range(scenes):
            of_python(n, how, ms)


print("[]", flush=True)
for line in sys.stdin:
    who, how, ms = line.split()
    counted = library.recorded if how == "sleep" else library.ended
    before = counted()
    run(who, int(how == "sleep"), int(ms))
    while counted() < before + scenes:
        time.sleep(0.01)
    if how == "sleep":
        time.sleep(0.1)  # until they are asleep
    print(library.what_was().decode(), flush=True)
