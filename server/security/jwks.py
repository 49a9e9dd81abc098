"""The keys of an authority, from a file or an address: read before the port opens, and now and then after it.

A token that names an unknown key makes the keys be fetched again, so that a new key counts at once: for one
key id at the most once a minute, and for a bounded number of them. A fetch that fails leaves the keys as they
are, and is repeated after a pause. Neither the clients nor the end of the broker wait for an authority.

Source: RefreshingHttpsJwks of Kafka 4.3.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from odradek.config.config_error import ConfigError
from odradek.server.security.signed_tokens import KeySet, read_key_set

if TYPE_CHECKING:
    import asyncio

    from odradek.apis.turn import TimerHandle, Timers
    from odradek.config.oauthbearer import SignedTokens

logger = logging.getLogger("odradek.authentication")

BYTES_MAX = 1_048_576
FETCH_SECONDS_MAX = 10
"""For all of it: the name, the connection, and the response."""
PIECE_BYTES = 65_536
MISS_INTERVAL_MS = 60_000
MISSES_MAX = 16
"""Unknown key ids that are remembered."""


def fetch(url: str) -> bytes:
    """The content of a `file:`, `http:` or `https:` address; no redirect is followed, and no proxy used.
    Raises OSError or ValueError, also for one that takes longer than `FETCH_SECONDS_MAX` in sum: what hangs
    goes on in a thread that nobody waits for."""
    results: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(_read(url, deadline))
        except Exception as error:
            results.put(error)

    deadline = time.monotonic() + FETCH_SECONDS_MAX
    threading.Thread(target=run, name="odradek-jwks", daemon=True).start()
    try:
        found = results.get(timeout=FETCH_SECONDS_MAX)
    except queue.Empty:
        raise _late() from None
    if isinstance(found, Exception):
        raise found
    return found


def _late() -> TimeoutError:
    return TimeoutError(f"it did not end within {FETCH_SECONDS_MAX} s")


def _read(url: str, deadline: float) -> bytes:
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            content = file.read(BYTES_MAX + 1)
    else:
        content = _downloaded(url, deadline)
    if len(content) > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX} bytes")
    return content


def _downloaded(url: str, deadline: float) -> bytes:
    # Imports about 50 modules; only listeners with a URL need them.
    from http.client import HTTPException
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    content = b""
    try:
        with build_opener(ProxyHandler({}), NoRedirect()).open(url, timeout=FETCH_SECONDS_MAX) as response:
            while len(content) <= BYTES_MAX and (piece := response.read1(PIECE_BYTES)):
                content += piece
                if time.monotonic() > deadline:
                    raise _late()
    except HTTPException as error:
        raise ValueError(f"no HTTP answer ({type(error).__name__})") from None
    return content


class Apart(Protocol):
    """Calls a function in a thread that nobody waits for, and then, on the event loop, `done` with its result
    or `failed`."""

    def __call__(
        self, function: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None: ...


class Jwks:
    """The present keys, kept fresh. `keys` and `miss` may be used in any thread."""

    def __init__(
        self,
        settings: SignedTokens,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        run_apart: Apart,
        now_ms: Callable[[], int],
        get: Callable[[str], bytes] = fetch,
    ) -> None:
        """`now_ms` is of a clock that does not jump."""
        self._settings = settings
        self._loop = loop
        self._timers = timers
        self._run_apart = run_apart
        self._now_ms = now_ms
        self._get = get
        self._keys = KeySet()
        self._misses: dict[str, int] = {}
        """When an unknown key id was asked for."""
        self._timer: TimerHandle | None = None
        self._is_fetching = self._is_closed = False
        self._pause_ms = settings.retry_ms

    def keys(self) -> KeySet:
        return self._keys

    def load(self) -> None:
        """The first keys, here and now. ConfigError: there are none."""
        try:
            self._keys = self._read()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"sasl.oauthbearer.jwks.endpoint.url: {self._settings.jwks_url} cannot be used: {error}."
            ) from None
        self._refresh_after(self._settings.refresh_ms)

    def miss(self, key_id: str | None) -> None:
        """A token has named a key that is not known."""
        if key_id is not None:
            self._loop.call_soon_threadsafe(self._note_miss, key_id)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _read(self) -> KeySet:
        return read_key_set(self._get(self._settings.jwks_url))

    def _note_miss(self, key_id: str) -> None:
        if self._is_fetching:
            return
        now_ms = self._now_ms()
        self._misses = {
            one: asked_ms for one, asked_ms in self._misses.items() if now_ms - asked_ms < MISS_INTERVAL_MS
        }
        if key_id in self._misses or len(self._misses) >= MISSES_MAX:
            return
        self._misses[key_id] = now_ms
        self._refresh()

    def _refresh_after(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_closed:
            self._timer = self._timers.after(delay_ms, self._refresh)

    def _refresh(self) -> None:
        if self._is_fetching or self._is_closed:
            return
        self._is_fetching = True
        self._run_apart(self._read, self._fetched, self._failed)

    def _fetched(self, keys: KeySet) -> None:
        self._is_fetching = False
        self._keys = keys
        self._pause_ms = self._settings.retry_ms
        self._refresh_after(self._settings.refresh_ms)

    def _failed(self, error: Exception) -> None:
        self._is_fetching = False
        if not isinstance(error, OSError | ValueError):
            logger.error("fetching keys failed", exc_info=error)
        else:
            logger.warning(
                "the keys at %s cannot be fetched, and the present ones stay: %s",
                self._settings.jwks_url,
                error,
            )
        self._refresh_after(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, self._settings.retry_ms_max)
