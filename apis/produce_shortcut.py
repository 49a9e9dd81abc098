"""The short way of the most common produce request: one topic, one partition, one batch, versions 9 to 13.

What such a request says before its records is the same again and again, so that part (from the transactional
id to the partition's index) is looked up as bytes instead of being decoded, and the answer is a template with
three numbers to fill in. A batch of a transaction is ordinary where that is open already: nobody has to be
asked then. Whatever is unusual (another shape, a refusal, unknown tags) takes the ordinary way through
`apis/produce.py`, which alone knows how to explain it; so the two cannot disagree on anything but speed. So
does whatever has to wait at a gate (`produce_gates.py`). Requests that arrived together and are all ordinary
are one burst with one answer, built when the last of their partitions is committed. The hot part is
the compiled `_produce_burst`.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from odradek.apis._produce_burst import Bursts, ProducePrefix
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.wire.errors import KafkaError
from odradek.wire.frames import response_parts
from odradek.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import Turn

FIRST_VERSION_WITH_IDS = 13

_ONE = 2  # a compact array's length is written as length + 1
_ID_POSITION, _ACKS_POSITION, _NAME_POSITION = 2, 2, 9
"""Those of acks and name where there is no transactional id; else they are as much later as it is long."""
_ACKS_ALL, _ACKS_LEADER = b"\xff\xff", b"\x00\x01"
_SENTINELS = (0x0102030405060708, 0x1112131415161718, 0x2122232425262728)


def shortcut(leadership: Leadership, turn: Turn, gates: dict[Any, Any]) -> Bursts:
    """The short way, but not to the partitions in `gates`. See `apis.api.Shortcut` for its arguments."""

    def learn(version: int, beginning: bytes) -> ProducePrefix | None:
        return _learn(leadership, version, beginning)

    return Bursts(learn, leadership.current_view, turn, gates)


def _learn(leadership: Leadership, version: int, beginning: bytes) -> ProducePrefix | None:
    """What a beginning means; None when the ordinary way has to say what is wrong with it."""
    id_bytes = max(beginning[_ID_POSITION - 1] - 1, 0)
    acks = beginning[_ACKS_POSITION + id_bytes : _ACKS_POSITION + id_bytes + 2]
    position = _NAME_POSITION + id_bytes
    if acks not in (_ACKS_ALL, _ACKS_LEADER):
        return None
    view = leadership.view
    topic_id: bytes = ZERO_UUID
    name: str | None
    if version >= FIRST_VERSION_WITH_IDS:
        topic_id = beginning[position : position + 16]
        name = view.topic_names.get(topic_id)
        position += 16
    else:
        name_bytes = beginning[position] - 1
        position += 1
        name = _text(beginning[position : position + name_bytes])
        position += max(name_bytes, 0)
    if _text(beginning[_ID_POSITION : _ID_POSITION + id_bytes]) is None:
        return None
    if name is None or name in INTERNAL_TOPICS or beginning[position] != _ONE:
        return None
    index = int.from_bytes(beginning[position + 1 :], "big", signed=True)
    try:
        led = leadership.lead(name, index)
    except KafkaError:
        return None
    replicas = led.view
    if acks == _ACKS_ALL and len(replicas.isr) < min(
        led.log.config.min_insync_replicas, len(replicas.replicas)
    ):
        return None
    response_name = "" if version >= FIRST_VERSION_WITH_IDS else name
    return _known(version, response_name, topic_id, index, led.log, view, id_bytes > 0)


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _known(
    version: int, name: str, topic_id: bytes, index: int, log: Any, view: Any, has_id: bool
) -> ProducePrefix:
    def answer(correlation_id: int, error_code: int, offsets: tuple[int, int, int]) -> bytes:
        base_offset, append_time_ms, log_start_offset = offsets
        partition = PartitionProduceResponse(
            index=index,
            error_code=error_code,
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=log_start_offset,
        )
        topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[partition])
        return b"".join(response_parts(ProduceResponse(responses=[topic]), version, correlation_id))

    def refuse(error: KafkaError, correlation_id: int) -> bytes:
        return answer(correlation_id, int(error.code), (-1, -1, -1))

    frame = answer(0, 0, _SENTINELS)
    return ProducePrefix(log, view, frame, frame.index(Layout(">qqq").pack(*_SENTINELS)), refuse, has_id)
