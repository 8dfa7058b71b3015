# SPDX-License-Identifier: Apache-2.0
"""workload.py's modes interpreters, inner, ownlock and successors: run in its namespace."""
# The whole workload again in a subinterpreter.
def script(number, mode="few"):
    return "import sys\nsys.argv = %r\nexec(compile(open(%r).read(), %r, 'exec'), %r)" % (
        [__file__, mode, LIBRARY, OUT + ".sub" * number, str(SAMPLES), str(int(FIRST) + (number << 26))],
        __file__, "sub.py", {"__name__": "__main__", "__file__": __file__})

within = ctypes.PyDLL(LIBRARY).run_in_interpreter

def within_interpreter():
    """By the module of the standard library, as programs do."""
    if sys.version_info < (3, 8):
        within_c(script(1))
    elif sys.version_info >= (3, 13):
        import _interpreters as interpreters
        made = interpreters.create("legacy")
        failed = interpreters.exec(made, script(1))
        assert failed is None, failed
    else:
        import _xxsubinterpreters as interpreters
        if sys.version_info >= (3, 12):
            made = interpreters.create(isolated=False)
        else:
            made = interpreters.create()
        interpreters.run_string(made, script(1))

def within_c(code, own_lock=0):
    """By the C API, as embedders and mod_wsgi do."""
    failed = within(code.encode(), own_lock, own_lock and sys.version_info >= (3, 13))
    assert failed == 0, failed

if MODE == "successors":
    # One after the other: each has the addresses of the one before.
    for number in range(1, SAMPLES + 1):
        within_c(script(number, "successor"), sys.version_info >= (3, 12) and number > SAMPLES // 2)
    SAMPLES = 1
run(SAMPLES, 600)
if MODE == "interpreters":
    within_interpreter()
    run(SAMPLES, 610)
    within_c(script(2, "inner"))
elif MODE == "inner":
    within_c(script(1))
elif MODE == "ownlock":
    within_c(script(1), 1)
    first_thread = threading.Thread(target=run, args=(SAMPLES, 650))
    first_thread.start()
    first_thread.join()
run(SAMPLES, 700)
