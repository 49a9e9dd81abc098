"""How long a request is retried."""

import time

from odradek.client.client_error import ClientError, NoBroker, Unreachable
from odradek.client.settings import ClientSettings

RETRY_MS_MAX = 1000
"""Pauses between attempts double up to this."""
TOLD_AFTER_S = 1.0
"""Pause after which a person is told the reason for a wait."""


class Patience:
    """How long a request is retried, and the pauses between; a new one for each request."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._began = time.monotonic()
        self._pause_s = settings.retry_ms / 1000

    def waited_ms(self) -> float:
        return (time.monotonic() - self._began) * 1000

    def renew(self) -> None:
        """Starts the time anew after progress."""
        self._began = time.monotonic()
        self._pause_s = self._settings.retry_ms / 1000

    def pause(self, doing: str, error: ClientError) -> None:
        """Waits before the next attempt; ClientError when `patience_ms` have passed."""
        left_s = (self._settings.patience_ms - self.waited_ms()) / 1000
        if left_s <= 0:
            time_text = f"{self._settings.patience_ms / 1000:g} s"
            if isinstance(error, NoBroker):
                raise Unreachable(f"no broker answered in {time_text}: {error}") from error
            raise ClientError(f"{doing} failed for {time_text}: {error}", error.code) from error
        pause_s = min(self._pause_s, left_s)
        quiet_s = TOLD_AFTER_S - self.waited_ms() / 1000
        if self._settings.tell is not None and quiet_s <= pause_s:
            time.sleep(max(0.0, quiet_s))
            self._settings.tell(f"{error}; trying for {self._settings.patience_ms / 1000:g} s")
            pause_s -= max(0.0, quiet_s)
        time.sleep(pause_s)
        self._pause_s = min(2 * self._pause_s, RETRY_MS_MAX / 1000)
