# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode names: run in its namespace."""
import types


def call(name, file):
    code = compile("def f():\n    return sample()\n", file, "exec").co_consts[0]
    if sys.version_info >= (3, 11):
        code = code.replace(co_name=name, co_qualname=name)
    elif sys.version_info >= (3, 8):
        code = code.replace(co_name=name)
    elif name.isidentifier():
        scope = {"sample": sample}
        exec(compile("def %s():\n    return sample()\n" % name, file, "exec"), scope)
        code = scope[name].__code__
    types.FunctionType(code, {"sample": sample})()


call("n" * (10 << 20), "/tmp/" + "f" * (10 << 20))
call("\u0434" * (3 << 20), "\u0434" * (3 << 20))
# Bytes of a file name that are not UTF-8, as os.fsdecode() gives them.
call("\udc80\udcff", "/tmp/\udcff\udcfe.py")
call("half \ud83d", "/tmp/\ud83d.py")
call("wide \U0001f40d and half \udc0d", "/tmp/\U0001f40d\udcff.py")
call("a\nb\x1b[31m\x7f", "/tmp/\t\r.py")
call("", " ")
