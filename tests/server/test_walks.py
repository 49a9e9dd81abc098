"""The walks of `docs/architecture.md` are those of real requests: a profiler follows each through a broker.

A page for newcomers names the main functions. What else a request calls has to be small, and its number is
held here. Not counted are compiled functions, which no profiler sees, generated ones (codecs, constructors of
dataclasses), lambdas and comprehensions.
"""

import asyncio
import os
import pathlib
import re
import sys

import pytest

from odradek.server import phase_serve
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch
from tests.kit.walks import ROOT, architecture, common_path
from tests.raw_client import RawClient
from tests.server.test_broker import Client, running

HELPER_LINES_MAX = 24
"""Lines of a function that a walk does not name."""
HELPERS_MAX = {"One produce": 4, "One fetch": 34, "One join": 49}
"""Walk -> functions that a request calls and its walk does not name. A number only goes down."""
FILES_MAX = {"One produce": 4, "One fetch": 17, "One join": 18}
"""Walk -> files of Python that a request goes through. A number only goes down."""
TIMES = 3
TOPIC, GROUP = "orders", "shop"


class Traced:
    """The functions of ours that this thread calls, in the order of their first calls."""

    def __init__(self):
        self.calls = {}

    def __enter__(self):
        self.before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(self.before)

    def _note(self, frame, event, _):
        if event == "call":
            self.calls.setdefault(frame.f_code)

    def functions(self):
        """Path and qualified name -> lines."""
        found = {}
        for code in self.calls:
            # The folders of the package are links into the checkout.
            path = pathlib.Path(os.path.realpath(code.co_filename))
            is_ours = path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "tests")
            if is_ours and not code.co_filename.startswith("<") and not code.co_name.startswith("<"):
                last = max(line for *_, line in code.co_lines() if line)
                found[str(path.relative_to(ROOT)), code.co_qualname] = last - code.co_firstlineno + 1
        return found


def is_named(step, function):
    """Whether a row of the page means this function: by its name, or by the name of its class."""
    (path, name), (called_path, qualified) = step, function
    return path == called_path and name in qualified.replace("<locals>.", "").split(".")


def check_walk(walk, traces):
    """Each of `traces` is of one request: what all of them called is no background work."""
    last = traces[-1].functions()
    called = {one: lines for one, lines in last.items() if all(one in more.functions() for more in traces)}
    steps = [step for step in common_path(walk) if step[0].endswith(".py")]
    named, position, order = set(), 0, list(called)
    for step in steps:
        at = [index for index, one in enumerate(order) if is_named(step, one)]
        later = [index for index in at if index >= position]
        assert later, f"{walk}: {step} is " + ("called before the steps above it" if at else "not called")
        position = later[0]
        named |= {order[index] for index in at}
    helpers = {one: lines for one, lines in called.items() if one not in named}
    text = "\n".join(f"{lines:3} {path} {name}" for (path, name), lines in helpers.items())
    files = {path for path, _ in called}
    print(f"{walk}: {len(named)} named, {len(helpers)} helpers, {len(files)} files\n{text}")
    assert not [one for one, lines in helpers.items() if lines > HELPER_LINES_MAX], "the walk has to name it"
    assert len(helpers) <= HELPERS_MAX[walk], f"{walk} calls more helpers than before:\n{text}"
    assert len(files) <= FILES_MAX[walk], f"{walk} goes through more files than before: {files}"


@pytest.fixture
def follow(tmp_path, monkeypatch):
    """Runs `story(server, ask)` with a broker; `ask(client, ...)` asks in another thread than the broker's,
    for a profiler sees one thread."""
    # Its steps would come between those of a request.
    monkeypatch.setattr(phase_serve, "_warm_up", lambda *_: None)

    async def ask(client, *arguments):
        return await asyncio.to_thread(client.ask, *arguments)

    async def with_broker(story):
        async with running(tmp_path, group_initial_rebalance_delay_ms=0) as server:
            client = await Client.connect(server.port)
            await client.create(TOPIC)
            client.writer.close()
            await story(server, ask)

    return lambda story: asyncio.run(with_broker(story))


def test_the_page_says_how_many_helpers_it_leaves_out():
    said = re.search(r"a produce calls (\d+), a fetch (\d+), a join (\d+)\.", architecture())
    assert [int(number) for number in said.groups()] == list(HELPERS_MAX.values())


def produced(topic_id):
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"x" * 100)])
    partition = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(topic_id=topic_id, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


async def id_of_the_topic(client, ask):
    answer = await ask(client, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
    return answer.topics[0].topic_id


def test_a_produce_walks_as_the_page_says(follow):
    """All of its way is compiled: what is Python are helpers alone."""

    async def story(server, ask):
        with RawClient(server.port) as client:
            topic_id = await id_of_the_topic(client, ask)
            traces = []
            for _ in range(2 + TIMES):
                request = produced(topic_id)
                with Traced() as traced:
                    answer = await ask(client, request, 13)
                assert answer.responses[0].partition_responses[0].error_code == 0
                traces.append(traced)
            check_walk("One produce", traces[-TIMES:])

    follow(story)


def test_a_fetch_walks_as_the_page_says(follow):
    """A session of a consumer that is behind, from its second request on."""

    async def story(server, ask):
        with RawClient(server.port) as client:
            topic_id = await id_of_the_topic(client, ask)
            for _ in range(2 + TIMES):
                await ask(client, produced(topic_id), 13)
            traces, session_id = [], 0
            for epoch in range(1 + TIMES):
                partition = FetchPartition(partition=0, fetch_offset=epoch, partition_max_bytes=1000)
                topic = FetchTopic(topic_id=topic_id, partitions=[partition])
                request = FetchRequest(
                    max_wait_ms=1000,
                    min_bytes=1,
                    max_bytes=10_000,
                    session_id=session_id,
                    session_epoch=epoch,
                    topics=[topic],
                )
                with Traced() as traced:
                    answer = await ask(client, request, 18)
                session_id = answer.session_id
                assert session_id
                assert answer.responses[0].partitions[0].records
                traces.append(traced)
            check_walk("One fetch", traces[-TIMES:])

    follow(story)


def joining(member_id, metadata=b""):
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


async def new_member(client, ask):
    """Its id; the group may still be loaded."""
    while True:
        answer = await ask(client, joining(""), 9)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return answer.member_id
        await asyncio.sleep(0.01)


def test_a_join_walks_as_the_page_says(follow):
    """The last of two members joins; the other one waits."""

    async def story(server, ask):
        with RawClient(server.port) as first, RawClient(server.port) as last:
            await ask(last, FindCoordinatorRequest(coordinator_keys=[GROUP]), 6)
            first_id, last_id = await new_member(first, ask), await new_member(last, ask)
            assert (await ask(last, joining(last_id), 9)).generation_id == 1
            traces = []
            for generation in range(2, 3 + TIMES):
                first.send_request(joining(first_id, b"%d" % generation), 9)
                while await state(last, ask) != "PreparingRebalance":
                    await asyncio.sleep(0.01)
                with Traced() as traced:
                    answer = await ask(last, joining(last_id), 9)
                assert (answer.error_code, answer.generation_id) == (0, generation)
                assert first.receive(JoinGroupRequest, 9)[1].generation_id == generation
                traces.append(traced)
            check_walk("One join", traces[-TIMES:])

    async def state(client, ask):
        answer = await ask(client, DescribeGroupsRequest(groups=[GROUP]), 6)
        return answer.groups[0].group_state

    follow(story)
