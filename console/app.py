"""The application: `make_app(settings)`, for any ASGI server; `running.py` has one."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from odradek.client.client_error import ClientError
from odradek.console.doors import Doors
from odradek.console.gate import Gate, is_own_origin
from odradek.console.kept_topics import KeptTopics
from odradek.console.memory import Holding, Memory
from odradek.console.rendering import STATIC, link
from odradek.console.screens.all_screens import SCREENS
from odradek.console.sessions import Session
from odradek.console.settings import ConsoleSettings
from odradek.console.visit import Screen, Shared, Visit
from odradek.console.workers import Slots, Workers
from odradek.wire.errors import ErrorCode

_log = logging.getLogger("odradek.console")
FORM_BYTES_MAX = 4 << 20
"""Size of a form at most."""
FIELDS_MAX = 200
TAILS_MAX = 8
COOKIE = "odradek"
FAULT = "This page has a fault; the log of the console has its trace."
NO_TOKEN = "Its form does not belong to this session: go back, load the page anew, and send it again."


def make_app(settings: ConsoleSettings, clock: Callable[[], float] = time.monotonic) -> Starlette:
    """The console as an ASGI application; `clock` gives seconds that only grow."""
    memory = Memory()
    settings = replace(settings, client=replace(settings.client, room=memory.take))
    shared = Shared(
        settings,
        Doors(settings, clock),
        Workers(),
        Workers(TAILS_MAX, 0, "console-tail"),
        Slots(TAILS_MAX),
        memory,
        KeptTopics(),
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        shared.close()

    async def not_found(request: Request, error: Exception) -> Response:
        visit = Visit(request, shared.doors.session_of(request.cookies.get(COOKIE)), shared, {})
        if settings.has_login and visit.session.access is None:
            return RedirectResponse("/login", 303)
        return visit.failure(ClientError("this page does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    app = Starlette(
        routes=[
            *(Route(one.path, _endpoint(shared, one), methods=list(one.methods)) for one in SCREENS),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Gate, hosts=settings.hosts), Middleware(Holding, memory=memory)],
        exception_handlers={404: not_found},
        lifespan=lifespan,
    )
    app.state.shared = shared
    return app


def _endpoint(shared: Shared, screen: Screen) -> Any:
    async def endpoint(request: Request) -> Response:
        visit = Visit(request, shared.doors.session_of(request.cookies.get(COOKIE)), shared, {})
        try:
            response = await _shown(screen, visit)
        except ClientDisconnect:
            return PlainTextResponse("", 400)
        except HTTPException:
            raise
        except Exception:
            _log.exception("The page %s failed", request.url.path)
            response = visit.page("failure.html", 500, title="A fault of the console", sentence=FAULT)
        if visit.session.is_new:
            _set_cookie(response, request, visit.session)
        return response

    return endpoint


async def _shown(screen: Screen, visit: Visit) -> Response:
    request = visit.request
    if request.method == "POST":
        if not is_own_origin(request.headers):
            return PlainTextResponse("A change has to come from a page of this console (Origin).\n", 403)
        visit.form = await _form(request)
        if not visit.session.has_token(visit.form.get("token", "")):
            return visit.page("failure.html", 403, title="The page was too old", sentence=NO_TOKEN)
        visit.shared.kept_topics.forget()
    if screen.needs_login and visit.session.access is None:
        return RedirectResponse(link("/login", next=_next(request)), 303)
    try:
        return await screen.show(visit)
    except ClientError as error:
        if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED and visit.settings.has_login:
            visit.log_out()
            return RedirectResponse(link("/login", next=_next(request), ended=True), 303)
        return visit.failure(error)


def _next(request: Request) -> str | None:
    if request.method != "GET" or request.url.path == "/":
        return None
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form, by urllib; 413 for one that is too large, 415 for what is no form."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HTTPException(415)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise HTTPException(413)
    try:
        return dict(
            parse_qsl(
                body.decode(), keep_blank_values=True, errors="surrogateescape", max_num_fields=FIELDS_MAX
            )
        )
    except ValueError:
        raise HTTPException(400) from None


def _set_cookie(response: Response, request: Request, session: Session) -> None:
    is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(COOKIE, session.cookie, httponly=True, samesite="strict", secure=is_secure, path="/")
