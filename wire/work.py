"""Long work in steps, so that the caller can serve other requests in between.

A `Work` is a generator. Where it yields None the others may have a turn. Where it yields a function, that one
may block (a sync of the disk) or compute for long (decompression): it is called where nobody has to wait for
it, and what it returns or raises is what the `yield` gives. What the work itself returns is its result. A
work that is closed before its end leaves things as a crash at that point would.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

__all__ = ["Work", "finish"]

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
