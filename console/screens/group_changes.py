"""Changes of a group, below its page: commits are moved or deleted with a dry run, the group is deleted.

SCREENS = [Screen("/group", show), *change_screens("/group", page)]

`page` shows the group with the `Changes`; its template has them by the macros of `group_changes.html`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from odradek.client.admin.groups import ListedGroup, delete_groups
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.group_changes import ForgetPlan, SeekPlan, named_groups, plan_forget, plan_seek
from odradek.commands.selecting import is_pattern
from odradek.console.rendering import link
from odradek.console.visit import Part, Screen, Visit, sentence
from odradek.wire.errors import ErrorCode

NAME_CHARACTERS_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Changes:
    """The result of a form below a group's page."""

    seek: Part[SeekPlan] | None = None
    forget: Part[ForgetPlan] | None = None
    is_done: bool = False
    """Whether it was done, and not only planned."""
    failed: str = ""


NO_CHANGES = Changes()
Page = Callable[[Visit, str, Changes], Awaitable[Response]]


def check_group(group: str) -> None:
    """ClientError for the empty name."""
    if not group:
        raise ClientError("a group has a name", ErrorCode.GROUP_ID_NOT_FOUND)


def one_group(cluster: Cluster, group: str) -> list[ListedGroup]:
    """The group as it is listed; ClientError if it is not there."""
    if not group or len(group) > NAME_CHARACTERS_MAX or is_pattern(group):
        raise ClientError(f"group {group} cannot be shown", ErrorCode.GROUP_ID_NOT_FOUND)
    return named_groups(cluster, [group])


def change_screens(path: str, page: Page, *, is_share: bool | None = None) -> list[Screen]:
    """The screens that change a group; `is_share`: only share groups, or only others."""

    async def seek(visit: Visit) -> Response:
        """Shows where the commits would go ("do" is plan), or moves them (seek)."""
        group, is_done = visit.text("id"), visit.text("do") == "seek"

        def planned(cluster: Cluster) -> SeekPlan:
            _check_name(group)
            plan = plan_seek(cluster, group, visit.text("to"), visit.text("topics").split() or None)
            _check_type(plan)
            if is_done:
                plan.carry_out(cluster)
            return plan

        part = await visit.part(planned)
        if is_done and part.value is not None and not part.value.refused:
            # A page that is loaded again moves nothing again.
            return visit.go(link(path, id=group, moved=len(part.value.after)))
        return await page(visit, group, Changes(seek=part, is_done=is_done))

    async def forget(visit: Visit) -> Response:
        """Shows which commits would be deleted ("do" is plan), or deletes them (forget)."""
        group, is_done = visit.text("id"), visit.text("do") == "forget"
        topics = visit.text("forgotten")
        if is_done and visit.text("name") != topics:
            failed = "Type the topics to delete what the group has committed for them; nothing was deleted."
            return await page(visit, group, Changes(failed=failed))

        def planned(cluster: Cluster) -> ForgetPlan:
            _check_name(group)
            if not topics:
                raise ClientError("name a topic")
            plan = plan_forget(cluster, group, topics.split())
            _check_type(plan)
            if is_done:
                plan.carry_out(cluster)
            return plan

        part = await visit.part(planned)
        if is_done and part.value is not None and not part.value.refused:
            return visit.go(link(path, id=group, forgot=len(part.value.chosen)))
        return await page(visit, group, Changes(forget=part, is_done=is_done))

    async def delete(visit: Visit) -> Response:
        """Deletes a group whose name was typed."""
        group = visit.text("id")
        if visit.text("name") != group:
            failed = "Type the name of the group to delete it; nothing was deleted."
            return await page(visit, group, Changes(failed=failed))

        def deleted(cluster: Cluster) -> None:
            for one in delete_groups(cluster, one_group(cluster, group)):
                raise one.error

        try:
            await visit.ask(deleted)
        except ClientError as error:
            return await page(visit, group, Changes(failed=sentence(error)))
        return visit.go(link("/groups"))

    def _check_type(plan: SeekPlan | ForgetPlan) -> None:
        if is_share is not None and plan.is_share != is_share:
            raise ClientError(f"group {plan.group} is {'no' if is_share else 'a'} share group")

    return [
        Screen(f"{path}/seek", seek, ("POST",)),
        Screen(f"{path}/forget", forget, ("POST",)),
        Screen(f"{path}/delete", delete, ("POST",)),
    ]


def _check_name(group: str) -> None:
    if is_pattern(group) or not group:
        raise ClientError("one group can be changed at a time")
