"""What goes on beside a test, in a thread of its own, until it is told to end."""

from __future__ import annotations

import abc
import threading
from typing import Self


class Working(abc.ABC):
    """From `start`, or `with`, to its end. An error ends it, and whoever ends it or asks."""

    patience_seconds = 90.0
    """For its end."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Returns when it has ended; raises what went wrong."""
        self._ending.set()
        self._thread.join(self.patience_seconds)
        self.raise_failure()
        assert not self._thread.is_alive(), f"{self} does not end"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.stop()
        except BaseException:
            # What went wrong in the test comes first.
            if kind is None:
                raise

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def __str__(self) -> str:
        return type(self).__name__

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as failure:
            failure.add_note(f"in the thread of {self}")
            self._failure = self._failure or failure

    @abc.abstractmethod
    def _run(self) -> None:
        """Goes on until `_ending` is set."""
