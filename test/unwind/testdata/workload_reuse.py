# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode reuse: run in its namespace.

Code objects of equal size, of which each dies before the next is made: the
allocator gives the next the same address, and its name, file and line table
those of the old ones.
"""
LONG = "the_same_in_all_of_them_" * 3


def by_name():
    name = "f%06d" % random.randrange(10**6)
    return name, "reuse.py", "def %s():\n    return sample()\n" % name


def by_head_of_name():
    name = "f%06d_%s" % (random.randrange(10**6), LONG)
    return name, "reuse.py", "def %s():\n    return sample()\n" % name


def by_file():
    return "same", "/tmp/%06d.py" % random.randrange(10**6), "def same():\n    return sample()\n"


def by_head_of_file():
    file = "/tmp/%06d/%s.py" % (random.randrange(10**6), LONG)
    return "same", file, "def same():\n    return sample()\n"


def by_first_line():
    return "same", "reuse.py", "\n" * random.randrange(50) + "def same():\n    return sample()\n"


def by_line():
    """A gap of as many bytes in the table, before more than 64 of them."""
    gap = "\n" * random.randrange(3, 9)
    return "same", "reuse.py", "def same():\n    x = 1\n%s%s    return sample()\n" % (gap, "    x = 2\n" * 60)


def by_class():
    kind = "K%s%06d" % ("l" * random.choice([0, 0, 35]), random.randrange(10**6))
    return "same", "reuse.py", "class %s:\n def run(self): return sample()\nsame = %s().run\n" % (kind, kind)


seen = {}
again = 0
for number in range(SAMPLES):
    name, file, source = random.choice(
        [by_name, by_head_of_name, by_file, by_head_of_file, by_first_line, by_line, by_class])()
    scope = {"sample": sample}
    exec(compile(source, file, "exec"), scope)
    function = scope[name]
    at = id(function.__code__)
    again += at in seen and seen[at] != source + file
    seen[at] = source + file
    function()
    del function
    scope.clear()
assert again > SAMPLES // 10, "only %d of %d code objects were where another had been" % (again, SAMPLES)
