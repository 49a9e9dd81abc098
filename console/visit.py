"""One request as a screen sees it.

async def show(visit: Visit) -> Response:
    topics = await visit.part(describe_topics)          # a Part: rows, or a sentence
    return visit.page("topics.html", topics=topics)

SCREENS = [Screen("/topics", show)]
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from odradek.client.admin.topics import TopicDescription
from odradek.client.client_error import ClientError, Unreachable
from odradek.client.cluster import Cluster, UnknownTopic
from odradek.console import rendering
from odradek.console.broker_admin import ask_brokers
from odradek.console.doors import Doors
from odradek.console.kept_topics import KeptTopics
from odradek.console.memory import HOLD, Hold, Memory
from odradek.console.sessions import Session
from odradek.console.settings import ConsoleSettings
from odradek.console.workers import Busy, Slots, Workers
from odradek.wire.errors import ErrorCode

Result = TypeVar("Result")
Show = Callable[["Visit"], Awaitable[Response]]
THEMES: Final = ("dark", "light")
_FORBIDDEN = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


@dataclass(frozen=True, slots=True)
class Screen:
    """A path, and the function that shows it. A POST reaches it only with the token of its session."""

    path: str
    show: Show
    methods: tuple[str, ...] = ("GET",)
    needs_login: bool = True


@dataclass(frozen=True, slots=True)
class Part(Generic[Result]):
    """A part of a page: what it shows, or why it cannot."""

    value: Result | None
    error: str = ""
    status: int = 200
    """Status of a page that has nothing but this part."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Parts that all requests of a console share."""

    settings: ConsoleSettings
    doors: Doors
    workers: Workers
    tail_workers: Workers
    """Threads of tails, which stay long."""
    tails: Slots
    memory: Memory
    """Room for large responses."""
    kept_topics: KeptTopics

    def close(self) -> None:
        """Ends all sessions, and takes no more work."""
        self.doors.close()
        self.workers.close()
        self.tail_workers.close()


class Visit:
    """A request with its session. `form` has the fields of a POST."""

    def __init__(self, request: Request, session: Session, shared: Shared, form: Mapping[str, str]) -> None:
        self.request, self.session, self.shared, self.form = request, session, shared, form
        self.settings = shared.settings

    # What was asked

    @property
    def query(self) -> dict[str, str]:
        """The query of the URL; of a name that is there twice, the last one."""
        return dict(self.request.query_params)

    def text(self, name: str, default: str = "") -> str:
        """A field of the form, or of the query; without spaces around it."""
        return self.form.get(name, self.request.query_params.get(name, default)).strip()

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A number of the form or of the query within bounds."""
        text = self.text(name)
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else default
        return min(max(number, least), most)

    def segment(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The brokers

    async def ask(self, work: Callable[[Cluster], Result]) -> Result:
        """The result of a call of the client, in a thread; ClientError."""
        access = self.session.access
        assert access is not None
        hold: Hold = self.request.scope[HOLD]

        def in_thread() -> Result:
            with hold.used(), access.cluster() as cluster:
                return work(cluster)

        return await self.shared.workers.run(in_thread)

    async def part(self, work: Callable[[Cluster], Result]) -> Part[Result]:
        """The result as a part of the page; a ClientError becomes its sentence."""
        try:
            return Part(await self.ask(work))
        except ClientError as error:
            if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            return Part(None, sentence(error), status_of(error))

    def all_topics(self, cluster: Cluster) -> list[TopicDescription]:
        """All topics that the person may see; in a thread. ClientError."""
        access = self.session.access
        assert access is not None
        return self.shared.kept_topics.read(access, cluster)

    async def tell(self, operation: str, **arguments: Any) -> Part[list[dict[str, Any]]]:
        """The facts that brokers tell this console alone, of each; as a part of the page."""
        client = self.request.client
        principal = f"User:{self.session.user or 'ANONYMOUS'}"
        host = client.host if client is not None else ""

        def asked() -> list[dict[str, Any]]:
            folder = self.settings.admin_folder
            return ask_brokers(folder, operation, principal=principal, host=host, **arguments)

        try:
            return Part(await self.shared.workers.run(asked))
        except ClientError as error:
            return Part(None, sentence(error))

    # Login

    async def log_in(self, user: str, password: str) -> None:
        """Takes the place of the session without a login. WrongLogin, or another ClientError."""
        doors = self.shared.doors
        access = await self.shared.workers.run(lambda: doors.enter(user, password))
        self.session = doors.log_in(self.session, access, user)

    def log_out(self) -> None:
        """Ends the session; there is a new one without a login."""
        self.shared.doors.log_out(self.session)
        self.session = self.shared.doors.session_of(None)

    # Responses

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """The page of a template. It has `visit`, `settings`, `session` and `theme` beside the values."""
        theme = self.request.cookies.get("theme", "")
        common = {
            "visit": self,
            "settings": self.settings,
            "session": self.session,
            "theme": theme if theme in THEMES else "",
            "path": self.request.url.path,
            "here": self.here,
            "refresh": "",
        }
        return HTMLResponse(rendering.page(template, {**common, **values}), status)

    @property
    def here(self) -> str:
        """The URL of this page without its host."""
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")

    def failure(self, error: ClientError) -> Response:
        """A page that says why there is nothing to see."""
        return self.page("failure.html", status_of(error), sentence=sentence(error), title=_title(error))

    def go(self, url: str) -> Response:
        """Sends the browser to another page."""
        return RedirectResponse(url, 303)


def sentence(error: ClientError) -> str:
    """The error for a person: with a capital and a full stop."""
    text = str(error).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def status_of(error: ClientError) -> int:
    """The status of a page that shows nothing but the error."""
    if isinstance(error, Unreachable | Busy):
        return 503
    if isinstance(error, UnknownTopic) or error.code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ):
        return 404
    return 403 if error.code in _FORBIDDEN else 502


def _title(error: ClientError) -> str:
    if isinstance(error, Busy):
        return "Busy"
    return {503: "No broker answers", 404: "Not there", 403: "Not allowed"}.get(
        status_of(error), "It did not work"
    )
