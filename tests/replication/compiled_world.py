"""The world of `replication_world.py` in which followers have the compiled exchange.

Logs are the same models. Requests and responses come over the wire as bytes. A response that the exchange
does not carry out goes to the machine. All that happens by chance happens in the same order as in the world
of the machine alone: one seed has one outcome in both.
"""

from collections import Counter

from odradek.server.cluster._fetching import FetchExchange
from odradek.wire.codec import decode_message
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import read_request_header, response_parts
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.records import iter_whole_batches, rising_batches
from tests.replication.model_log import ModelLog, decode
from tests.replication.replication_world import ANSWER_WITHIN_MS, Node, World

VERSION = 17
SIZE_BYTES = 4


class CompiledWorld(World):
    exchange_class = FetchExchange

    def __init__(self, seed: int) -> None:
        self.judged: Counter[bool] = Counter()
        """Responses to fetches that count, by whether the exchange has carried them out."""
        super().__init__(seed)

    def new_node(self, node_id: int) -> Node:
        return CompiledNode(self, node_id)


class FollowedLog:
    """A model log with what the exchange needs of a log."""

    def __init__(self, node: "CompiledNode", key, log: ModelLog) -> None:
        self._node = node
        self._key = key
        self._log = log

    def __getattr__(self, name: str):
        return getattr(self._log, name)

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._log.high_watermark = offset

    def offsets(self) -> tuple[int, int, int]:
        return self._log.log_start_offset, self._log.log_end_offset, self._log.high_watermark

    def survey(self, buffer, start: int, end: int, leader_epoch_max: int) -> tuple[int, int] | None:
        records = memoryview(buffer)[start:end]
        size_bytes, next_offset = rising_batches(records, self._log.log_end_offset, leader_epoch_max)
        try:
            rest = next(iter_whole_batches(records[size_bytes:]), None)
        except KafkaError:
            return None
        if rest is not None and rest[1].leader_epoch <= leader_epoch_max:
            return None
        return (size_bytes, next_offset) if size_bytes else None

    def take(self, buffer, start: int, end: int, high_watermark: int) -> None:
        self._node.take(self._key, self._log, bytes(memoryview(buffer)[start:end]), high_watermark)


class CompiledNode(Node):
    def forget_all(self) -> None:
        super().forget_all()
        self.exchanges: dict = {}
        """By fetcher: its connection."""

    def followed_log(self, key, log: ModelLog) -> FollowedLog:
        return FollowedLog(self, key, log)

    def exchange_of(self, fetcher) -> FetchExchange:
        if fetcher not in self.exchanges:
            self.exchanges[fetcher] = self.world.exchange_class(fetcher, f"broker-{self.id}", self.failed)
        return self.exchanges[fetcher]

    def ask(self, fetcher, request) -> None:
        if not isinstance(request, FetchRequest):
            super().ask(fetcher, request)
            return
        exchange = self.exchange_of(fetcher)
        self.send_fetch(fetcher, exchange, request, exchange.begin(request, VERSION))

    def send_fetch(self, fetcher, exchange, request, frame: bytes) -> None:
        """`request` is the machine's, perhaps the first of many."""
        world, leader, life = self.world, self.world.nodes[fetcher.leader_id], self.life
        header, position = read_request_header(frame, SIZE_BYTES)
        assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
        assert header.correlation_id == exchange.correlation_id
        sent = decode_message(FetchRequest, header.api_version, frame[position:])

        def is_open():
            return (
                self.exchanges.get(fetcher) is exchange
                and exchange.is_waiting
                and exchange.correlation_id == header.correlation_id
            )

        def answer(response):
            if world.happens(world.weather.late_files):
                delay_ms = world.random.randrange(500)
                world.at(delay_ms, leader.send_from_file, sent, response, answered, self.id)
            else:
                world.send(leader.id, self.id, answered, response)

        def answered(response):
            if life != self.life:
                return
            if is_open():
                self.fetch_answered(fetcher, exchange, request, response)
            else:
                self.pump_fetcher(fetcher)

        def given_up():
            if is_open():
                del self.exchanges[fetcher]
                fetcher.failed(request, self.now_ms)
            self.pump_fetcher(fetcher)

        world.send(self.id, leader.id, leader.serve_fetch, self.id, sent, answer)
        self.at(ANSWER_WITHIN_MS, given_up)

    def fetch_answered(self, fetcher, exchange, request, response) -> None:
        parts = response_parts(response, VERSION, exchange.correlation_id)
        frame = bytearray(b"".join(parts))
        self.has_changed = False
        # A slow disk is the machine's: the exchange waits for no disk.
        is_judged = exchange.judge(frame, SIZE_BYTES, len(frame)) if not self.disk_ms else False
        self.world.judged[is_judged] += 1
        following = exchange.next_frame() if is_judged else None
        if following is not None:
            self.send_fetch(fetcher, exchange, request, following)
            return
        if not is_judged:
            self.change_logs(fetcher.fetch_answered(request, response, self.now_ms))
        elif self.has_changed:
            self.pump_fetcher(fetcher)  # as after the last change of a log
        self.pump_fetcher(fetcher)

    def take(self, key, log: ModelLog, records: bytes, high_watermark: int) -> None:
        if self.world.happens(0.01):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE)  # damaged on its way
        for batch in decode(records):
            log.append(batch)
            self.world.stands(key, batch, self.id)
        log.high_watermark = max(log.high_watermark, high_watermark)
        self.log_changed(key, log)

    def failed(self, key, error) -> None:
        self.change_logs(self.fetchers.done(key, error, self.now_ms))
        self.log_changed(key, self.replicas[key].log)

    def log_changed(self, key, log: ModelLog) -> None:
        if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
            self.world.complain(f"{key}: {self.id} has the high watermark {log.high_watermark}")
        self.has_changed = True
        self.wake_polls()
        for fetcher in self.fetchers.fetchers.values():
            if key not in fetcher.partitions:
                self.pump_fetcher(fetcher)


def outcome(world: World) -> tuple:
    """All that a world has come to, and the state of its chance."""
    logs = {
        (node_id, key): (log.batches, log.epochs.entries(), log.log_start_offset, log.high_watermark)
        for node_id, node in world.nodes.items()
        for key, log in node.disk.items()
    }
    return world.complaints, dict(world.counts), logs, world.committed, world.random.getstate()
