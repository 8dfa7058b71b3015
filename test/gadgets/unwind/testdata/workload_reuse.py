# SPDX-License-Identifier: Apache-2.0
"""workload.py's modes reuse, methods and reload: run in its namespace.

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


def by_class_again():
    """Classes wait for the collector, and with them functions that have died elsewhere."""
    name = "made_%d" % random.randrange(3)
    kind = "K%d" % random.randrange(6)
    return "same", "<string>", "class %s:\n def %s(self): return sample()\n%s().%s()\ndef same(): pass\n" % (
        kind, name, kind, name)


class Reloaded:
    def run(self):
        return sample()


def with_table(code, table):
    """The code with another line table, which is nowhere else."""
    table = bytes(bytearray(table))
    if sys.version_info >= (3, 10):
        return code.replace(co_linetable=table)
    if sys.version_info >= (3, 8):
        return code.replace(co_lnotab=table)
    return type(code)(code.co_argcount, code.co_kwonlyargcount, code.co_nlocals, code.co_stacksize, code.co_flags,
                      code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_filename, code.co_name,
                      code.co_firstlineno, table)


def by_reload():
    """Other code in the function of a class that stays as it is, as reloaders do."""
    gap, table = random.choice(tables)
    Reloaded.run.__code__ = with_table(Reloaded.run.__code__, table)
    return "same", "reload.py", "same = reloaded.run\n# %d\n" % gap


def by_module_reload():
    """The same in the function of a module, whose other globals do not change."""
    gap, table = random.choice(tables)
    module["stays"].__code__ = with_table(module["stays"].__code__, table)
    return "same", "reload.py", "same = module['stays']\n# %d\n" % gap


def table_of(gap):
    scope = {}
    exec(compile("def run(self):\n%s    return sample()\n" % ("\n" * gap), "reloaded.py", "exec"), scope)
    code = scope["run"].__code__
    return gap, code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab


ways = [by_name, by_head_of_name, by_file, by_head_of_file, by_first_line, by_line, by_class] + [by_class_again] * 14
if MODE == "methods":
    ways = [by_class_again]
if MODE == "reload":
    ways = [by_module_reload if SAMPLES % 2 else by_reload]
    tables = [table_of(gap) for gap in range(1, 9)]
    reloaded = Reloaded()
    module = {"sample": sample}
    exec(compile("def stays():\n    return sample()\n", "module.py", "exec"), module)
seen = {}
again = 0
for number in range(SAMPLES):
    name, file, source = random.choice(ways)()
    scope = {"sample": sample}
    if MODE == "reload":
        scope.update(reloaded=reloaded, module=module)
    exec(compile(source, file, "exec"), scope)
    function = scope[name]
    at = id(function.__code__)
    again += at in seen and seen[at] != source + file
    seen[at] = source + file
    function()
    del function
    scope.clear()
assert again > SAMPLES // 10, "only %d of %d code objects were where another had been" % (again, SAMPLES)
