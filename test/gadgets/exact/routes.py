# SPDX-License-Identifier: Apache-2.0
"""About sixty ways through Python to one driver call.

A route is a callable route(driver, fn, args) that ends in driver.invoke(fn, args)
and returns its result. They differ in what a tracer must get right: functions,
lines of one function, methods and their classes, recursion depth, closures,
generators, coroutines, and Python called back from C code.
"""
import functools


def plain(d, fn, args):
    return d.invoke(fn, args)


def lines(which, d, fn, args):
    """One function, many lines."""
    if which == 0:
        return d.invoke(fn, args)
    if which == 1:
        return d.invoke(fn, args)
    if which == 2:
        for _ in range(1):
            return d.invoke(fn, args)
    if which == 3:
        try:
            return d.invoke(fn, args)
        finally:
            which = -1
    if which == 4:
        return (
            d.invoke(fn, args)
        )
    if which == 5:
        return d.invoke(
            fn,
            args,
        )
    result = None
    while result is None:
        result = d.invoke(fn, args)
    return result


def recurse(depth, d, fn, args):
    if depth:
        return recurse(depth - 1, d, fn, args)
    return d.invoke(fn, args)


def ping(depth, d, fn, args):
    if depth:
        return pong(depth - 1, d, fn, args)
    return d.invoke(fn, args)


def pong(depth, d, fn, args):
    if depth:
        return ping(depth - 1, d, fn, args)
    return d.invoke(fn, args)


class Layer:
    scale = 1

    def __init__(self, inner=None):
        self.inner = inner

    def forward(self, d, fn, args):
        if self.inner:
            return self.inner.forward(d, fn, args)
        return self.allocate(d, fn, args)

    def allocate(self, d, fn, args):
        return d.invoke(fn, args)

    @classmethod
    def of_class(cls, d, fn, args):
        return d.invoke(fn, args)

    @staticmethod
    def of_nothing(d, fn, args):
        return d.invoke(fn, args)

    def __call__(self, d, fn, args):
        return self.allocate(d, fn, args)

    def __getitem__(self, key):
        return key[0].invoke(key[1], key[2])

    def nested_function(self, d, fn, args):
        def inner():
            return d.invoke(fn, args)
        return inner()


class Attention(Layer):
    """Inherits forward; allocate is its own."""

    def allocate(self, d, fn, args):
        return d.invoke(fn, args)


class Mlp(Layer):
    """Goes up to the base class."""

    def allocate(self, d, fn, args):
        return super().allocate(d, fn, args)

    class Gate:
        def open(self, d, fn, args):
            return d.invoke(fn, args)


class Prepared:
    """A property that calls the driver."""

    def __init__(self, d, fn, args):
        self.d, self.fn, self.args = d, fn, args

    @property
    def result(self):
        return self.d.invoke(self.fn, self.args)

    def __enter__(self):
        self.value = self.d.invoke(self.fn, self.args)
        return self

    def __exit__(self, *_):
        return False

    def __iter__(self):
        yield self.d.invoke(self.fn, self.args)


def by_property(d, fn, args):
    return Prepared(d, fn, args).result


def by_with(d, fn, args):
    with Prepared(d, fn, args) as p:
        return p.value


def by_iter(d, fn, args):
    for result in Prepared(d, fn, args):
        return result


def by_getitem(d, fn, args):
    return Layer()[d, fn, args]


def closure(depth):
    if depth:
        inner = closure(depth - 1)

        def outer(d, fn, args):
            return inner(d, fn, args)
        return outer

    def innermost(d, fn, args):
        return d.invoke(fn, args)
    return innermost


def decorated(times):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(d, fn, args):
            return function(d, fn, args)
        return wrapper

    def target(d, fn, args):
        return d.invoke(fn, args)
    for _ in range(times):
        target = decorate(target)
    return target


def generator(d, fn, args):
    def produce():
        yield d.invoke(fn, args)
    return next(produce())


def yield_from(depth, d, fn, args):
    def produce(n):
        if n:
            yield from produce(n - 1)
        else:
            yield d.invoke(fn, args)
    return next(produce(depth))


def coroutine(depth, d, fn, args):
    async def work(n):
        if n:
            return await work(n - 1)
        return d.invoke(fn, args)
    try:
        work(depth).send(None)
    except StopIteration as stop:
        return stop.value


def list_comprehension(d, fn, args):
    return [d.invoke(fn, args) for _ in range(1)][0]


def dict_comprehension(d, fn, args):
    return {0: d.invoke(fn, args) for _ in range(1)}[0]


def generator_expression(d, fn, args):
    return next(d.invoke(fn, args) for _ in range(1))


def by_sorted(d, fn, args):
    """C code calls Python back: the interpreter is entered a second time."""
    results = []

    def key(_):
        results.append(d.invoke(fn, args))
        return 0
    sorted([0], key=key)
    return results[0]


def by_map(d, fn, args):
    def one(_):
        return d.invoke(fn, args)
    return list(map(one, [0]))[0]


def by_reduce(d, fn, args):
    def both(_, __):
        return d.invoke(fn, args)
    return functools.reduce(both, [0, 0])


def by_sorted_twice(d, fn, args):
    results = []

    def key(_):
        results.append(by_sorted(d, fn, args))
        return 0
    sorted([0], key=key)
    return results[0]


def by_comparison(d, fn, args):
    """A slot function of the type calls Python back."""
    results = []

    class Ordered:
        def __lt__(self, other):
            results.append(d.invoke(fn, args))
            return True
    sorted([Ordered(), Ordered()])
    return results[0]


def with_exception(d, fn, args):
    try:
        raise KeyError("handled")
    except KeyError:
        return d.invoke(fn, args)


def many_locals(d, fn, args):
    a = b = c = e = f = g = h = i = j = k = 0
    x, y, *z = range(20)
    result = d.invoke(fn, args)
    del a, b, c, e, f, g, h, i, j, k, x, y, z
    return result


def größe(d, fn, args):
    return d.invoke(fn, args)


_generated = {}
exec(compile("def generated(d, fn, args):\n    return d.invoke(fn, args)\n", "<generated>", "exec"),
     _generated)


def evaluated(d, fn, args):
    return eval("d.invoke(fn, args)", {"d": d, "fn": fn, "args": args})


def by_partial(d, fn, args):
    return functools.partial(d.invoke, fn)(args)


def routes(plain_names=False):
    """All routes. plain_names leaves out names that are not ASCII."""
    all_routes = [plain, by_property, by_with, by_iter, by_getitem, generator]
    all_routes += [functools.partial(lines, n) for n in range(7)]
    all_routes += [functools.partial(recurse, n) for n in (1, 2, 3, 5, 8, 13, 21, 34)]
    all_routes += [functools.partial(ping, n) for n in (1, 2, 9)]
    all_routes += [Layer().forward, Layer(Layer()).forward, Layer(Attention()).forward,
                   Attention().forward, Attention(Layer()).forward, Mlp().forward,
                   Mlp(Attention(Mlp())).forward, Mlp.Gate().open, Layer.of_class,
                   Attention.of_class, Layer.of_nothing, Layer(), Attention(),
                   Layer().nested_function]
    all_routes += [closure(n) for n in (0, 1, 4)]
    all_routes += [decorated(n) for n in (1, 3)]
    all_routes += [functools.partial(yield_from, n) for n in (1, 4)]
    all_routes += [functools.partial(coroutine, n) for n in (0, 3)]
    all_routes += [list_comprehension, dict_comprehension, generator_expression, by_sorted,
                   by_map, by_reduce, by_sorted_twice, by_comparison, with_exception,
                   many_locals, _generated["generated"], evaluated, by_partial,
                   lambda d, fn, args: d.invoke(fn, args)]
    if not plain_names:
        all_routes.append(größe)
    return all_routes
