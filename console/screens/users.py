"""Users for SCRAM: who can log in by which mechanism; a password is set, a credential is deleted.

A password goes to the brokers, as a hash, and nowhere else.
"""

from hmac import compare_digest

from starlette.responses import Response

from odradek.client.admin.users import describe_users, put_user, remove_user
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.selecting import parse_whole
from odradek.config.config_error import ConfigError
from odradek.config.first_users import checked_user
from odradek.console.listing import Listing
from odradek.console.rendering import link
from odradek.console.visit import Screen, Visit, sentence
from odradek.wire.errors import ErrorCode
from odradek.wire.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_NUMBERS

KEYS = ("user", "mechanism", "iterations")
PASSWORD_CHARACTERS_MAX = 10_000


async def show(visit: Visit) -> Response:
    """Users and their mechanisms."""
    return await _page(visit)


async def _page(visit: Visit, failed: str = "") -> Response:
    query, text = visit.query, visit.text("filter")

    def listed(cluster: Cluster) -> Listing:
        rows = [
            {"user": one.user, "mechanism": one.mechanism, "iterations": one.iterations}
            for one in describe_users(cluster)
            if text.lower() in one.user.lower()
        ]
        return Listing(rows, "/users", query, KEYS)

    return visit.page(
        "users.html",
        users=await visit.part(listed),
        filter=text,
        failed=failed,
        user=visit.text("user"),
        mechanism=visit.text("mechanism") or next(iter(MECHANISM_NUMBERS)),
        mechanisms=[*MECHANISM_NUMBERS],
        iterations=visit.text("iterations", str(ITERATIONS_MIN)),
        bounds=(ITERATIONS_MIN, ITERATIONS_MAX),
        done=visit.text("done"),
    )


async def put(visit: Visit) -> Response:
    """Makes a user, or gives one another password."""
    user, mechanism = visit.text("user"), visit.text("mechanism")
    password = visit.form.get("password", "")

    def made(cluster: Cluster) -> None:
        if not compare_digest(password.encode(), visit.form.get("again", "").encode()):
            raise ClientError("the two passwords are not the same; nothing was changed")
        if len(password) > PASSWORD_CHARACTERS_MAX:
            raise ClientError("the password is too long")
        iterations = parse_whole(visit.text("iterations") or str(ITERATIONS_MIN), "The number of iterations")
        try:
            checked = checked_user(user, mechanism, password, iterations)
        except ConfigError as error:
            raise ClientError(str(error)) from None
        put_user(cluster, checked.name, checked.mechanism, checked.password.reveal(), checked.iterations)

    try:
        await visit.ask(made)
    except ClientError as error:
        return await _page(visit, sentence(error))
    return visit.go(link("/users", user=user, mechanism=mechanism, done="set"))


async def delete(visit: Visit) -> Response:
    """Deletes a credential whose user was typed."""
    user, mechanism = visit.text("user"), visit.text("mechanism")
    if visit.text("name") != user:
        return await _page(visit, "Type the name of the user to delete it; nothing was deleted.")

    def deleted(cluster: Cluster) -> None:
        found = describe_users(cluster, [user])
        if mechanism not in [one.mechanism for one in found]:
            sentence_of = f"user {user} with {mechanism} does not exist"
            raise ClientError(sentence_of, ErrorCode.RESOURCE_NOT_FOUND)
        remove_user(cluster, user, mechanism)

    try:
        await visit.ask(deleted)
    except ClientError as error:
        return await _page(visit, sentence(error))
    return visit.go(link("/users", user=user, mechanism=mechanism, done="deleted"))


SCREENS = [
    Screen("/users", show),
    Screen("/users/set", put, ("POST",)),
    Screen("/users/delete", delete, ("POST",)),
]
