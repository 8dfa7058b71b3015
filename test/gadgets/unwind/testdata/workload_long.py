# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode long: run in its namespace.

A function whose line table has at least SAMPLES bytes takes a sample at its beginning, in its middle and
at its end. Below 3.11, where a line has two bytes, the table is shorter: of a place the unwinder tells
apart 1 MiB of code.
"""
size = SAMPLES if QUALNAMES else min(SAMPLES, 80 << 10)


def longest(lines):
    places = (2, lines // 2, lines - 1)
    body = ["def longest(at, x=0):"]
    for i in range(lines):
        body.append("    if at == %d: return go(0)" % i if i in places else "    x = min(x, 1, at)")
    scope = {"go": go}
    exec(compile("\n".join(body), "/tmp/longest.py", "exec"), scope)
    code = scope["longest"].__code__
    table = getattr(code, "co_linetable", None) or code.co_lnotab
    return scope["longest"], places, len(table)


_, _, some = longest(1000)
longest, places, found = longest(1010 * size // some + 20)
assert found >= size, found
for place in places:
    longest(place)
