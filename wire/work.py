"""Long work in steps, so that the caller can serve other requests between them.

A `Work` is a generator. When it yields None, other work may run. It may yield a function that blocks (a sync
of the disk) or computes for long (decompression): the function is called in a worker thread, and its result
or exception is that of the `yield`. The return value of the generator is the result of the work. After a
close before its end the state is as after a crash at that point.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Work = Generator[Callable[[], Any] | None, Any, T]


def finish(work: Work[T]) -> T:
    """Runs all steps at once; returns the result and raises the errors of the work."""
    try:
        step = next(work)
        while True:
            if step is None:
                step = next(work)
                continue
            try:
                result = step()
            except Exception as error:
                step = work.throw(error)
            else:
                step = work.send(result)
    except StopIteration as end:
        finished: T = end.value
        return finished
