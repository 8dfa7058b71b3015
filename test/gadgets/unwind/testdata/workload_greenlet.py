# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode greenlet: run in its namespace."""
import greenlet


def switching(depth):
    if depth:
        return switching(depth - 1)
    parent().switch()
    sample()


def parent():
    return greenlet.getcurrent().parent


def nested(depth):
    """A greenlet in a greenlet, left and entered again in the middle."""
    def inside():
        sample()
        parent().switch()
        go(3)

    let = greenlet.greenlet(inside)
    let.switch()
    sample()
    if depth:
        greenlet.greenlet(lambda: nested(depth - 1)).switch()
    parent().switch()
    let.switch()
    sample()


def caught():
    try:
        parent().switch()
    except ValueError:
        sample()
        go(2)
        raise


def generating():
    for _ in range(3):
        yield sample()
        parent().switch()


def thrown(let):
    try:
        let.throw(ValueError)
    except ValueError:
        sample()


def every_kind():
    lets = [greenlet.greenlet(functools.partial(switching, i)) for i in range(4)]
    lets += [greenlet.greenlet(functools.partial(nested, 3)) for _ in range(2)]
    lets += [greenlet.greenlet(lambda: list(generating()))]
    for let in lets * 3:
        let.switch()
        sample()
    let = greenlet.greenlet(caught)
    let.switch()
    thrown(let)


every_kind()
others = [threading.Thread(target=every_kind) for _ in range(3)]
for other in others:
    other.start()
for other in others:
    other.join()
