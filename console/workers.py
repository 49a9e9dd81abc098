"""Threads for the client's calls, which block; bounded, and so is the number that waits for one."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from odradek.client.client_error import ClientError

THREADS = 8
WAITING_MAX = 64
Result = TypeVar("Result")


class Busy(ClientError):
    """Too many calls are waiting for one more."""


class Workers:
    """A bounded pool of threads; `run` is for the event loop alone."""

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX, name: str = "console") -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._places = threads + waiting_max
        self._taken = 0

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of `work` in a thread; raises what it raises, or Busy. A caller that is cancelled does
        not end it: its thread is free when it has returned."""
        if self._taken >= self._places:
            raise Busy("the console is busy with other pages: try again in a moment")
        future = self._pool.submit(work)
        self._taken += 1
        future.add_done_callback(self._freeing(asyncio.get_running_loop()))
        return await asyncio.wrap_future(future)

    def _freeing(self, loop: asyncio.AbstractEventLoop) -> Callable[[object], None]:
        def free(_: object) -> None:
            try:
                loop.call_soon_threadsafe(self._free)
            except RuntimeError:  # the loop has ended
                pass

        return free

    def _free(self) -> None:
        self._taken -= 1

    def close(self) -> None:
        """Starts nothing more; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Slots:
    """Places for what stays long, a number of them; from any thread."""

    def __init__(self, most: int) -> None:
        self._left = threading.Semaphore(most)
        self.is_over = False
        """Whether those who have a place are to go."""

    def end(self) -> None:
        """Asks all to go."""
        self.is_over = True

    def take(self) -> bool:
        """False: all are taken."""
        return self._left.acquire(blocking=False)

    def give_back(self) -> None:
        """Frees one that was taken."""
        self._left.release()
