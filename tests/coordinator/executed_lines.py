"""How much work something is, in lines of Python that are run: the same on every machine."""

import gc
import sys
from collections.abc import Callable


def lines_run(action: Callable[[], object]) -> int:
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    # A collection in between would run finalizers of other tests, whose lines would count.
    gc.disable()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        gc.enable()
    return count
