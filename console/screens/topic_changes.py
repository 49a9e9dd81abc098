"""Changes of topics: a new one, more partitions, fewer records, and the end of one."""

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from odradek.client.admin.topics import add_partitions, create_topic, delete_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.selecting import is_pattern, parse_whole
from odradek.commands.topics import TrimPlan, parse_config, plan_trim
from odradek.console.rendering import link
from odradek.console.screens.partitions import described
from odradek.console.visit import Part, Screen, Visit, sentence

PARTITIONS_MAX = 2**31 - 1
REPLICAS_MAX = 2**15 - 1


# A new topic ------------------------------------------------------------------------------------------


async def new(visit: Visit) -> Response:
    """The form of a new topic."""
    return _new_page(visit)


def _new_page(visit: Visit, created: Part[str] | None = None) -> Response:
    return visit.page("create_topic.html", created=created)


async def create(visit: Visit) -> Response:
    """Lets the brokers check a new topic ("do" is check), or makes it (create)."""
    is_done = visit.text("do") == "create"

    def made(cluster: Cluster) -> str:
        name = visit.text("name")
        if not name:
            raise ClientError("a topic has a name")
        partitions = parse_whole(visit.text("partitions") or "-1", "Partitions", -1, PARTITIONS_MAX)
        replicas = parse_whole(visit.text("replicas") or "-1", "Replicas", -1, REPLICAS_MAX)
        lines = [line.strip() for line in visit.form.get("configs", "").splitlines()]
        configs = dict(_config(line) for line in lines if line)
        is_new = create_topic(
            cluster, name, partitions, configs, replication_factor=replicas, only_validate=not is_done
        )
        if not is_new:
            raise ClientError(f"topic {name} already exists")
        return name

    part = await visit.part(made)
    if is_done and part.value is not None:
        return visit.go(link("/topics", part.value, "partitions", created=True))
    return _new_page(visit, part)


def _config(line: str) -> tuple[str, str]:
    try:
        return parse_config(line)
    except ClientError:
        raise ClientError(f"the option {line} is not NAME=VALUE") from None


# A topic that is there --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """Results of a form of the page."""

    partitions: Part[dict[str, Any]] | None = None
    trim: Part[TrimPlan] | None = None
    is_done: bool = False
    failed: str = ""


async def show(visit: Visit) -> Response:
    """The forms that change a topic."""
    return await _page(visit, visit.segment("topic"))


async def _page(visit: Visit, topic: str, changes: Changes | None = None) -> Response:
    part = await visit.part(lambda cluster: described(cluster, topic))
    return visit.page(
        "change_topic.html",
        200 if part.value is not None or changes is not None else part.status,
        topic=topic,
        shown=part,
        changes=changes or Changes(),
    )


async def grow(visit: Visit) -> Response:
    """Lets the brokers check more partitions ("do" is check), or adds them (add)."""
    topic, is_done = visit.text("topic"), visit.text("do") == "add"

    def made(cluster: Cluster) -> dict[str, Any]:
        number = parse_whole(visit.text("partitions"), "Partitions", 1, PARTITIONS_MAX)
        before = len(described(cluster, topic).partitions)
        add_partitions(cluster, topic, number, only_validate=not is_done)
        return {"partitions_before": before, "partitions": number}

    part = await visit.part(made)
    return await _page(visit, topic, Changes(partitions=part, is_done=is_done))


async def trim(visit: Visit) -> Response:
    """Shows which records would be deleted ("do" is plan), or deletes them (trim)."""
    topic, is_done = visit.text("topic"), visit.text("do") == "trim"
    partition = visit.text("partition")
    if is_done and visit.text("typed") != topic:
        return await _page(
            visit, topic, Changes(failed="Type the name of the topic to delete records; nothing was deleted.")
        )

    def planned(cluster: Cluster) -> TrimPlan:
        if not topic or is_pattern(topic) or ":" in topic:
            raise ClientError("one topic can be changed at a time")
        number = parse_whole(partition, "Partition", 0, PARTITIONS_MAX) if partition else None
        plan = plan_trim(cluster, [topic if number is None else f"{topic}:{number}"], visit.text("before"))
        if is_done:
            plan.carry_out(cluster)
        return plan

    part = await visit.part(planned)
    if is_done and part.value is not None and not part.value.refused:
        deleted = sum(row["records_deleted"] for row in part.value.rows())
        return visit.go(link("/topics", topic, "change", deleted=str(deleted)))
    return await _page(visit, topic, Changes(trim=part, is_done=is_done))


async def delete(visit: Visit) -> Response:
    """Deletes a topic whose name was typed."""
    topic = visit.text("topic")
    if visit.text("typed") != topic or not topic:
        return await _page(
            visit, topic, Changes(failed="Type the name of the topic to delete it; nothing was deleted.")
        )

    def deleted(cluster: Cluster) -> None:
        described(cluster, topic)  # one that is not there would be asked for again and again
        for one in delete_topics(cluster, [topic]):
            raise one.error

    try:
        await visit.ask(deleted)
    except ClientError as error:
        return await _page(visit, topic, Changes(failed=sentence(error)))
    return visit.go("/topics")


SCREENS = [
    Screen("/create-topic", new),
    Screen("/create-topic/send", create, ("POST",)),
    Screen("/topics/{topic}/change", show),
    Screen("/topic/add-partitions", grow, ("POST",)),
    Screen("/topic/trim", trim, ("POST",)),
    Screen("/topic/delete", delete, ("POST",)),
]
