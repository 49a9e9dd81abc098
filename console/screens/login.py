"""Login, logout and the theme."""

from starlette.responses import Response

from odradek.client.client_error import ClientError
from odradek.console.doors import WrongLogin
from odradek.console.visit import THEMES, Screen, Visit, sentence, status_of

FIRST = "/overview"
"""Page after a login that was not sent there by another."""
THEME_S = 365 * 86_400


async def show(visit: Visit) -> Response:
    """The form."""
    if visit.session.access is not None:
        return visit.go(FIRST)
    told = "The session is over, or the brokers do not take its password any more."
    sentence_shown = told if visit.text("ended") else ""
    return visit.page("login.html", sentence=sentence_shown, user="", next=visit.text("next"))


async def log_in(visit: Visit) -> Response:
    """Asks the brokers for user and password that were typed; failures are slowed by name and by address."""
    if not visit.settings.has_login:
        return visit.go(FIRST)
    user, failures = visit.text("user"), visit.shared.doors.failures
    names = (f"user {user}", f"address {visit.request.client.host if visit.request.client else ''}")
    wait_s = failures.wait_s(*names)
    if wait_s:
        return _again(visit, f"Too many attempts failed: wait {wait_s:.0f} s before the next one.", 429)
    # Counted before the brokers are asked: attempts at the same time are not free.
    failures.failed(*names)
    try:
        await visit.log_in(user, visit.form.get("password", ""))
    except WrongLogin as error:
        return _again(visit, sentence(error), 403)
    except ClientError as error:
        failures.succeeded(*names)
        return _again(visit, sentence(error), status_of(error))
    failures.succeeded(*names)
    return visit.go(_own(visit.text("next")))


async def log_out(visit: Visit) -> Response:
    """Ends the session."""
    visit.log_out()
    return visit.go("/login" if visit.settings.has_login else FIRST)


async def choose_theme(visit: Visit) -> Response:
    """Remembers dark or light in a cookie; anything else is as the system has it."""
    response = visit.go(_own(visit.text("next")))
    theme = visit.text("theme")
    if theme in THEMES:
        response.set_cookie("theme", theme, max_age=THEME_S, samesite="strict", httponly=True)
    else:
        response.delete_cookie("theme", samesite="strict", httponly=True)
    return response


def _again(visit: Visit, told: str, status: int) -> Response:
    return visit.page("login.html", status, sentence=told, user=visit.text("user"), next=visit.text("next"))


def _own(url: str) -> str:
    """A path of this console: no other host, as in `//elsewhere` or `/\\elsewhere`."""
    is_own = (
        url.startswith("/") and not url.startswith(("//", "/\\")) and url.isprintable() and "\\" not in url
    )
    return url if is_own else FIRST


SCREENS = [
    Screen("/login", show, needs_login=False),
    Screen("/login", log_in, ("POST",), needs_login=False),
    Screen("/logout", log_out, ("POST",), needs_login=False),
    Screen("/theme", choose_theme, ("POST",), needs_login=False),
]
