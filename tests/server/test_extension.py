"""A program adds an API, a type of groups and an option, and edits no file of the packages.

The toy is a counter: a group of type `counter` keeps a number in `__consumer_offsets`; the API `Count` adds
`counter.step` to it, an option, and answers when a timer of the group has rung.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest

import odradek
from odradek.apis.api import Waiting
from odradek.apis.declaration import Api
from odradek.config.option import CLUSTER_WIDE, HONOURED, INT, Option
from odradek.coordinator.asked import Ticket
from odradek.coordinator.effects import Effect, Reply, SetTimer
from odradek.coordinator.groups.group_type import GroupHandlers, GroupType, MachineParts
from odradek.server.extensions import Extensions
from odradek.wire.codec import decoder
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.log_records import LogRecord, RecordTypes
from odradek.wire.schema import INT16, INT64, STRING, Message, on_wire
from tests.raw_client import RawClient

NONE = ErrorCode.NONE
COUNTER = "counter"
WAIT_MS = 1

# The option

STEP = Option("counter.step", HONOURED, INT, 1, "How much Count adds.", low=1, dynamic=CLUSTER_WIDE)

# The API: its messages, its handler, its declaration


class CountRequest(Message, api_key=1000, versions=(0, 0)):
    group_id: str = on_wire(STRING)


class CountResponse(Message, api_key=1000, versions=(0, 0)):
    error_code: int = on_wire(INT16)
    count: int = on_wire(INT64)


def counting(parts):
    node, settings = parts.node, parts.settings

    def handle(request, context):
        waiting = Waiting()
        ticket = Ticket(waiting.complete, lambda code: CountResponse(error_code=code, count=-1))
        command = Count(ticket, request.group_id, settings.option_value("counter.step"))
        node.groups().submit(request.group_id, command)
        return waiting

    return handle


COUNT = Api(CountRequest, CountResponse, make=counting, needs=())


# The type of groups: its command, its record, its group, its membership, its entry


@dataclass(slots=True)
class Count:
    ticket: Ticket[CountResponse]
    group_id: str
    step: int


class CounterKey(LogRecord, record_type=1000, versions=(0, 0)):
    group_id: str = on_wire(STRING)


class CounterValue(LogRecord, record_type=1000, versions=(0, 0)):
    count: int = on_wire(INT64)


class CounterGroup:
    group_type = COUNTER
    protocol_type = None
    state_name = "Stable"
    is_empty = True
    empty_since_ms = None
    offsets_may_expire = False
    may_expire = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.count = 0
        self.waiting: list[Any] = []
        """Tickets of commands whose records are written."""

    def check_commit(self, command) -> ErrorCode:
        return ErrorCode.UNKNOWN_MEMBER_ID

    def check_fetch(self, member_id, member_epoch) -> ErrorCode:
        return NONE

    def check_deletion(self) -> ErrorCode:
        return NONE

    def check_offset_deletion(self) -> ErrorCode:
        return NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def keys(self) -> list[Any]:
        return [CounterKey(group_id=self.group_id)]

    def apply(self, key: CounterKey, value: CounterValue | None) -> bool:
        self.count = 0 if value is None else value.count
        return value is not None


class Counters:
    def __init__(self, parts: MachineParts) -> None:
        self.parts = parts

    def count(self, command: Count, now_ms: int, out: list[Effect]) -> None:
        group_id, group = command.group_id, self.parts.groups.get(command.group_id)
        if group is not None and group.group_type != COUNTER:
            out.append(Reply(command.ticket, command.ticket.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
            return
        count = command.step + (0 if group is None else group.count)
        self.parts.store(group_id, [(CounterKey(group_id=group_id), CounterValue(count=count))], now_ms, out)
        self.parts.groups[group_id].waiting.append(command.ticket)
        out.append(SetTimer(("counter-wait", group_id), now_ms + WAIT_MS))

    def expire(self, group: CounterGroup, timer_key, now_ms: int, out: list[Effect]) -> None:
        response = CountResponse(error_code=NONE, count=group.count)
        out += [Reply(ticket, response) for ticket in group.waiting]
        group.waiting.clear()

    def refuse_waiting(self, group: CounterGroup, code: ErrorCode, out: list[Effect]) -> None:
        out += [Reply(ticket, ticket.refused(code)) for ticket in group.waiting]

    def start(self, group, now_ms, out) -> None:
        """Nobody waits after a load."""

    def topics_changed(self, group, names, now_ms, out) -> None:
        """A counter has no topics."""

    def offsets_committed(self, group, member_id, now_ms, out) -> None:
        """A counter has no offsets."""

    def owned(self, group, view):
        """A counter has no members."""
        return iter(())


def check_name(command: Count, settings: Any) -> CountResponse | None:
    return None if command.group_id else command.ticket.refused(ErrorCode.INVALID_GROUP_ID)


def start(parts: MachineParts) -> GroupHandlers:
    counters = Counters(parts)
    return GroupHandlers(membership=counters, new_group=CounterGroup, commands={Count: counters.count})


COUNTER_GROUPS = GroupType(
    name=COUNTER,
    records=RecordTypes(keys=(CounterKey,), values=(CounterValue,)),
    timers=("counter-wait",),
    start=start,
    checks={Count: check_name},
)

# All three in a broker

EXTENSIONS = Extensions(apis=[COUNT], group_types=[COUNTER_GROUPS], options=[STEP])


@contextlib.contextmanager
def running(directory, **options):
    with (
        odradek.Broker(
            data_dir=directory, extensions=EXTENSIONS, offsets_topic_num_partitions=1, **options
        ) as broker,
        RawClient(broker.port) as client,
    ):
        finding = FindCoordinatorRequest(coordinator_keys=["g"])
        while client.ask(finding, 4).coordinators[0].error_code:
            pass  # the topic of groups is being made
        yield client


def ask(client, request):
    """As `RawClient.ask`, for an API that is not among the declared ones."""
    client.send(request_frame(request, 0, 1, "toy"))
    return decoder(CountResponse, 0)(client.receive_frame(), 4)[0]


def count(client, group_id="g"):
    """The number of the group after one more; once its partition is loaded."""
    while True:
        answer = ask(client, CountRequest(group_id=group_id))
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode(answer.error_code), answer.count


def test_an_added_api_is_served_and_advertised(tmp_path):
    with running(tmp_path) as client:
        served = {one.api_key: one.max_version for one in client.ask(ApiVersionsRequest(), 0).api_keys}
        assert served[1000] == 0
        assert 0 in served
        assert count(client) == (NONE, 1)
        assert count(client, group_id="") == (ErrorCode.INVALID_GROUP_ID, -1)


def test_a_group_of_an_added_type_outlives_a_restart_and_is_listed_and_deleted_like_others(tmp_path):
    with running(tmp_path) as client:
        assert [count(client) for _ in range(3)] == [(NONE, 1), (NONE, 2), (NONE, 3)]
    with running(tmp_path) as client:
        assert count(client) == (NONE, 4)
        listing = ListGroupsRequest(types_filter=[COUNTER])
        (group,) = client.ask(listing, 5).groups
        assert (group.group_id, group.group_type, group.group_state) == ("g", COUNTER, "Stable")
        (deleted,) = client.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
        assert deleted.error_code == NONE
        assert count(client) == (NONE, 1)


def test_an_added_option_is_set_at_start_described_and_changed_while_the_broker_runs(tmp_path):
    with running(tmp_path, counter_step=5) as client:
        assert count(client) == (NONE, 5)
        of_broker = DescribeConfigsResource(
            resource_type=4, resource_name="1", configuration_keys=["counter.step"]
        )
        (result,) = client.ask(DescribeConfigsRequest(resources=[of_broker]), 4).results
        (config,) = result.configs
        assert (config.name, config.value, config.read_only) == ("counter.step", "5", False)

        def change(value):
            changed = AlterableConfig(name="counter.step", config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[changed])
            (result,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            return result.error_code

        assert change("0") == ErrorCode.INVALID_REQUEST
        assert change("7") == NONE
        assert count(client) == (NONE, 5 + 7)


def test_another_broker_of_the_same_program_has_nothing_of_it(tmp_path):
    with running(tmp_path / "with"), odradek.Broker(data_dir=tmp_path / "without") as broker:
        with RawClient(broker.port) as client:
            served = {one.api_key for one in client.ask(ApiVersionsRequest(), 0).api_keys}
            assert 1000 not in served
        with pytest.raises(odradek.BrokerStartError, match=r"no option 'counter\.step'"):
            odradek.Broker(counter_step=5).start()


def test_extensions_do_not_reach_another_process():
    with pytest.raises(ValueError, match="child process"):
        odradek.Broker(process=True, extensions=EXTENSIONS)
