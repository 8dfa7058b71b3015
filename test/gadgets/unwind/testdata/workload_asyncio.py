# SPDX-License-Identifier: Apache-2.0
"""workload.py's mode asyncio: run in its namespace."""
import asyncio


def expect(depth):
    """Takes a sample, after a look whether what awaits is in the stack at all."""
    frame, count = sys._getframe(), 0
    while frame is not None:
        count += frame.f_code.co_name in LINKS
        frame = frame.f_back
    assert count == depth + 1, (count, depth)
    sample()


async def leaf(depth):
    expect(depth)
    await asyncio.sleep(0)  # the loop runs the others, and comes back here
    expect(depth)
    await asyncio.sleep(0.001)
    expect(depth)


async def by_coroutine(depth, rest):
    await step(depth + 1, rest)


async def by_expression(depth, rest):
    return [
        await step(depth + 1, rest)
        for _ in range(1)
    ]


async def by_loop(depth, rest):
    async def items():
        yield 1
        await asyncio.sleep(0)
        yield 2

    async for _ in items():
        pass
    await step(depth + 1, rest)


async def by_context(depth, rest):
    class Context:
        async def __aenter__(self):
            await asyncio.sleep(0)
            sample()

        async def __aexit__(self, *args):
            sample()

    async with Context():
        await step(depth + 1, rest)


async def by_object(depth, rest):
    class Object:
        def __await__(self):
            return (yield from step(depth + 1, rest).__await__())

    await Object()


LINKS = ("leaf", "by_coroutine", "by_expression", "by_loop", "by_context", "by_object")
KINDS = [by_coroutine, by_expression, by_loop, by_context, by_object]


def step(depth, rest):
    if rest == 0:
        return leaf(depth)
    return random.choice(KINDS)(depth, rest - 1)


async def everything():
    await asyncio.gather(*[step(0, i % 20) for i in range(SAMPLES)])
    await asyncio.gather(*[asyncio.ensure_future(asyncio.wait_for(step(0, 3), 60)) for _ in range(5)])
    # Callbacks of the loop, and its threads.
    done = asyncio.get_running_loop().create_future()

    def called():
        sample()
        done.set_result(None)

    asyncio.get_running_loop().call_soon(called)
    await done
    await asyncio.get_running_loop().run_in_executor(None, go, 4)


mine.count = 0
random.seed(800)
loop = asyncio.new_event_loop()
loop.run_until_complete(everything())
loop.close()
