"""How long a request is retried."""

import time

from odradek.client.client_error import ClientError
from odradek.client.settings import ClientSettings

RETRY_MS_MAX = 1000
"""Pauses between attempts double up to this."""


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
            raise ClientError(
                f"{doing} failed for {self._settings.patience_ms / 1000:g} s, at last because {error}",
                error.code,
            ) from error
        time.sleep(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, RETRY_MS_MAX / 1000)
