"""TLS between a connection and its socket: see `tests/server/tls_ends.py`."""

from __future__ import annotations

import asyncio
import datetime
import random
import ssl

import pytest

from odradek.security.tls import TlsSettings
from tests.server.tls_ends import Authority, Ends, acceptor, turn

PLAIN_ALERT = bytes.fromhex("15030300020250")
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def stranger() -> Authority:
    return Authority()


def connected(authority: Authority, chunk: int = 1 << 20) -> Ends:
    ends = Ends(acceptor(authority.server_options()), authority.client_context(), chunk)
    ends.shake_hands()
    return ends


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chunk", [1, 7, 1000, 1 << 20])
def test_what_is_sent_arrives_however_it_is_split(
    authority: Authority, version: ssl.TLSVersion, chunk: int
) -> None:
    context = authority.client_context()
    context.minimum_version = context.maximum_version = version
    ends = Ends(acceptor(authority.server_options()), context, chunk)
    ends.shake_hands()
    sent = random.Random(chunk).randbytes(100_000 if chunk > 1 else 20_000)
    ends.ask(sent)
    assert ends.protocol.received == sent
    ends.transport.write(sent[:100])
    ends.transport.writelines([sent[100:200], memoryview(sent)[200:], b"", b"end"])
    assert ends.answers() == sent + b"end"


def test_long_answers_of_any_length_arrive_whole(authority: Authority) -> None:
    ends = connected(authority)
    chance = random.Random(1)
    for size in (1, 16_383, 16_384, 16_385, 65_536, 262_145, 1_100_000):
        sent = chance.randbytes(size)
        ends.transport.write(sent)
        assert ends.answers() == sent
        ends.transport.writelines([sent[:5], memoryview(sent)[5:], sent[:3]])
        assert ends.answers() == sent + sent[:3]


def test_a_client_that_wants_small_records_gets_all_of_a_long_answer(authority: Authority) -> None:
    # As OpenSSL does with the extension max_fragment_length: it takes less than a whole record at once.
    listener = acceptor(authority.server_options())

    class Short:
        def __init__(self, whole: ssl.SSLObject) -> None:
            self.whole = whole

        def write(self, data: memoryview) -> int:
            return self.whole.write(data[:512])

        def __getattr__(self, name: str) -> object:
            return getattr(self.whole, name)

    class ShortContext:
        whole = listener.context

        def wrap_bio(self, *arguments: object, **more: bool) -> Short:
            return Short(self.whole.wrap_bio(*arguments, **more))  # type: ignore[arg-type]

    listener.context = ShortContext()  # type: ignore[assignment]
    ends = Ends(listener, authority.client_context())
    ends.shake_hands()
    sent = random.Random(2).randbytes(40_000)
    ends.transport.write(sent[:1000])
    ends.transport.write(sent[1000:])
    assert ends.answers() == sent


def test_who_asks_for_new_keys_and_does_not_read_the_answers_is_not_read_any_more(
    authority: Authority,
) -> None:
    # Python's clients cannot ask for new keys (KeyUpdate of TLS 1.3): this OpenSSL answers whatever it reads.
    listener = acceptor(authority.server_options())
    control = bytes(10_000)

    class Answering:
        def __init__(self, whole: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> None:
            self.whole, self.outgoing = whole, outgoing

        def read(self, size_bytes: int, room: memoryview) -> object:
            received = self.whole.read(size_bytes, room)  # type: ignore[arg-type]
            self.outgoing.write(control)
            return received

        def __getattr__(self, name: str) -> object:
            return getattr(self.whole, name)

    class AnsweringContext:
        whole = listener.context

        def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool) -> Answering:
            return Answering(self.whole.wrap_bio(incoming, outgoing, server_side), outgoing)

    listener.context = AnsweringContext()  # type: ignore[assignment]

    async def run() -> None:
        ends = Ends(listener, authority.client_context())
        ends.shake_hands()
        ends.socket.is_blocked = True
        asked = 0
        while not ends.socket.is_paused:
            assert ends.socket.get_write_buffer_size() < 300_000
            ends.client.write(b"x")
            ends.deliver(ends.outgoing.read())
            asked += 1
        assert ends.protocol.received == b"x" * asked
        ends.socket.unblock()
        await turn()
        assert not ends.socket.is_paused

    asyncio.run(run())


def test_a_client_cannot_have_the_connection_negotiated_again_nor_compressed(authority: Authority) -> None:
    context = acceptor(authority.server_options()).context
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_every_flipped_byte_of_a_record_closes_the_connection_and_delivers_nothing(
    authority: Authority,
) -> None:
    listener = acceptor(authority.server_options())
    for position in range(0, 122, 3):
        ends = Ends(listener, authority.client_context())
        ends.shake_hands()
        ends.client.write(b"x" * 100)
        record = bytearray(ends.outgoing.read())
        assert len(record) > position
        record[position] ^= 0x01
        ends.deliver(bytes(record))
        if not ends.socket.is_closing():
            # A length that is too large: what is missing never comes.
            assert position in (3, 4)
            ends.deliver(bytes(20_000))
        assert ends.protocol.received == b""
        assert ends.socket.is_closing()
    assert listener.failed_count == len(range(0, 122, 3))


def test_every_flipped_byte_of_a_hello_ends_the_connection_or_changes_nothing(authority: Authority) -> None:
    listener = acceptor(authority.server_options())
    failed = 0
    for position in range(200):
        ends = Ends(listener, authority.client_context())
        with pytest.raises(ssl.SSLWantReadError):
            ends.client.do_handshake()
        hello = bytearray(ends.outgoing.read())
        hello[position] ^= 0x81
        ends.deliver(bytes(hello))
        ends.transport.eof_received()
        assert ends.protocol.received == b""
        failed += ends.socket.is_closing()
        if not ends.socket.is_closing():
            ends.transport.connection_lost(None)
    assert failed > 20
    assert len(listener.under_way) == 0 or failed > 0
    whole = connected(authority)
    whole.ask(b"still served")
    assert whole.protocol.received == b"still served"


def test_what_is_no_tls_gets_the_alert_of_kafka_and_is_closed_before_openssl_has_any_memory(
    authority: Authority,
) -> None:
    listener = acceptor(authority.server_options())
    for start in (b"\0\0\0\x20\0\x12\0\3", b"GET / HTTP/1.1\r\n", b"\x15\3\3"):
        ends = Ends(listener, authority.client_context())
        ends.deliver(start)
        assert ends.socket.sent == PLAIN_ALERT
        assert ends.socket.is_closing()
        assert ends.transport.get_extra_info("ssl_object") is None
    assert listener.failed_count == 3
    assert len(listener.under_way) == 0


def test_a_handshake_that_is_not_done_in_time_is_closed_and_counted(authority: Authority) -> None:
    now = [0]
    listener = acceptor(authority.server_options(), lambda: now[0])
    silent = Ends(listener, authority.client_context())
    now[0] = 10_000
    half = Ends(listener, authority.client_context())
    with pytest.raises(ssl.SSLWantReadError):
        half.client.do_handshake()
    half.deliver(half.outgoing.read()[:40])
    done = Ends(listener, authority.client_context())
    done.shake_hands()
    assert len(listener.under_way) == 2
    now[0] = 29_999
    listener.sweep()
    assert len(listener.under_way) == 2
    now[0] = 30_000
    listener.sweep()
    assert silent.socket.is_closing()
    assert not half.socket.is_closing()
    now[0] = 40_000
    listener.sweep()
    assert half.socket.is_closing()
    assert not done.socket.is_closing()
    assert (len(listener.under_way), listener.failed_count) == (0, 2)


def test_a_client_that_goes_in_the_midst_of_the_handshake_is_counted_and_a_look_at_the_port_is_not(
    authority: Authority,
) -> None:
    listener = acceptor(authority.server_options())
    look = Ends(listener, authority.client_context())
    assert look.transport.eof_received() is False
    look.transport.connection_lost(None)
    assert (listener.failed_count, len(listener.under_way)) == (0, 0)
    half = Ends(listener, authority.client_context())
    with pytest.raises(ssl.SSLWantReadError):
        half.client.do_handshake()
    half.deliver(half.outgoing.read()[:100])
    assert half.transport.eof_received() is False
    half.transport.connection_lost(ConnectionResetError())
    assert (listener.failed_count, len(listener.under_way)) == (1, 0)
    assert half.protocol.is_lost


def test_nothing_is_delivered_while_the_connection_does_not_read_and_all_of_it_later_in_order(
    authority: Authority,
) -> None:
    async def run() -> None:
        ends = connected(authority)
        sent = random.Random(3).randbytes(300_000)
        ends.protocol.on_data = ends.transport.pause_reading
        ends.client.write(sent[:10_000])
        ends.carry()
        assert len(ends.protocol.received) == 4096
        assert ends.socket.is_paused
        while len(ends.protocol.received) < 10_000:
            ends.transport.resume_reading()
            await turn()
        assert ends.protocol.received == sent[:10_000]
        assert ends.socket.is_paused
        ends.protocol.on_data = lambda: None
        ends.transport.resume_reading()
        await turn()
        assert not ends.socket.is_paused
        ends.ask(sent[10_000:])
        assert ends.protocol.received == sent

    asyncio.run(run())


def test_a_connection_may_stop_and_go_on_in_the_midst_of_what_it_gets(authority: Authority) -> None:
    async def run() -> None:
        ends = connected(authority)

        def stop_and_go() -> None:
            ends.transport.pause_reading()
            ends.transport.resume_reading()

        ends.protocol.on_data = stop_and_go
        sent = random.Random(4).randbytes(200_000)
        ends.ask(sent)
        await turn()
        assert ends.protocol.received == sent
        assert not ends.socket.is_paused

    asyncio.run(run())


def test_what_the_connection_did_not_want_yet_is_bounded_by_one_read_of_the_socket(
    authority: Authority,
) -> None:
    ends = connected(authority)
    ends.protocol.on_data = ends.transport.pause_reading
    rest = memoryview(bytes(1 << 20))
    while rest:
        rest = rest[ends.client.write(rest) :]
    data = ends.outgoing.read()
    first = len(ends.transport.get_buffer(-1))
    ends.deliver(data[:first])
    assert ends.socket.is_paused
    assert len(ends.protocol.received) == 4096


def test_a_client_that_does_not_read_is_noticed_by_the_connection(authority: Authority) -> None:
    ends = connected(authority)
    ends.socket.is_blocked = True
    sent = random.Random(5).randbytes(500_000)
    ends.transport.writelines([sent])
    assert ends.protocol.is_full
    assert ends.transport.get_write_buffer_size() > 500_000
    ends.socket.unblock()
    assert not ends.protocol.is_full
    assert ends.answers() == sent


def test_the_end_is_said_to_the_client_and_heard_from_it(authority: Authority) -> None:
    ends = connected(authority)
    ends.transport.write(b"last")
    ends.transport.close()
    assert ends.socket.is_closing()
    assert ends.answers() == b"last"
    assert ends.client.read(10) == b""
    other = connected(authority)
    other.client.write(b"bye")
    with pytest.raises(ssl.SSLWantReadError):
        other.client.unwrap()
    other.carry()
    assert other.protocol.received == b"bye"
    assert other.protocol.is_ended
    assert other.socket.is_closing()


def test_nothing_is_written_after_the_end(authority: Authority) -> None:
    ends = connected(authority)
    ends.transport.abort()
    ends.transport.write(b"x")
    ends.transport.writelines([b"x"])
    ends.transport.close()
    ends.transport.connection_lost(None)
    ends.transport.resume_reading()
    assert ends.socket.sent == b""
    assert ends.socket.is_aborted
    assert ends.protocol.is_lost


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_names_the_principal_by_the_rules(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    client = authority.issue("x.example", common_name="Alice")
    rules = "RULE:^CN=([^,]*),.*$/$1/L"
    for client_auth in ("requested", "required"):
        options = authority.server_options(**authority.trusting(client_auth), principal_mapping_rules=rules)
        context = authority.client_context(client)
        context.minimum_version = context.maximum_version = version
        ends = Ends(acceptor(options), context)
        ends.shake_hands()
        assert ends.protocol.principal == "User:alice"


def test_with_sasl_the_certificate_names_nobody(authority: Authority) -> None:
    options = authority.server_options(**authority.trusting())
    client = authority.client_context(authority.issue("x.example"))
    ends = Ends(acceptor(options, names_principal=False), client)
    ends.shake_hands()
    assert ends.protocol.principal == "User:ANONYMOUS"


def fails(ends: Ends) -> bool:
    """Whether the server ends the handshake; in TLS 1.3 the client is done before."""
    try:
        ends.shake_hands()
    except ssl.SSLError:
        pass
    return ends.socket.is_closing()


def test_who_shows_no_certificate_is_anonymous_or_refused(authority: Authority) -> None:
    for client_auth, is_refused in (("none", False), ("requested", False), ("required", True)):
        more = authority.trusting(client_auth) if client_auth != "none" else {}
        listener = acceptor(authority.server_options(**more))
        ends = Ends(listener, authority.client_context())
        assert fails(ends) is is_refused
        assert ends.protocol.principal == "User:ANONYMOUS"
        assert listener.failed_count == is_refused


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_foreign_and_expired_certificates_are_refused_and_not_taken_for_none(
    authority: Authority, stranger: Authority, version: ssl.TLSVersion, client_auth: str
) -> None:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired = authority.issue("x.example", not_after=past)
    foreign = stranger.issue("x.example")
    listener = acceptor(authority.server_options(**authority.trusting(client_auth)))
    for issued in (expired, foreign):
        context = authority.client_context(issued)
        context.minimum_version = context.maximum_version = version
        ends = Ends(listener, context)
        assert fails(ends)
        assert ends.protocol.received == b""
    assert listener.failed_count == 2


def test_a_certificate_that_no_rule_takes_is_refused(authority: Authority) -> None:
    options = authority.server_options(**authority.trusting(), principal_mapping_rules="RULE:^CN=other$/x/")
    listener = acceptor(options)
    ends = Ends(listener, authority.client_context(authority.issue("x.example")))
    assert fails(ends)
    assert listener.failed_count == 1


def test_new_connections_get_the_new_certificate_and_old_ones_live_on(authority: Authority) -> None:
    listener = acceptor(authority.server_options())
    old = Ends(listener, authority.client_context())
    old.shake_hands()
    first = old.client.getpeercert(True)
    settings = TlsSettings.of(authority.server_options())
    listener.use(settings, settings.server_context())
    new = Ends(listener, authority.client_context())
    new.shake_hands()
    assert new.client.getpeercert(True) != first
    old.ask(b"still here")
    old.transport.write(b"yes")
    assert old.protocol.received == b"still here"
    assert old.answers() == b"yes"


def test_no_session_is_kept_in_memory_and_one_of_tls_1_3_is_not_resumed_where_certificates_are_asked_for(
    authority: Authority,
) -> None:
    for version in VERSIONS:
        context = authority.client_context(authority.issue("x.example"))
        context.minimum_version = context.maximum_version = version
        listener = acceptor(authority.server_options(**authority.trusting()))
        ends = Ends(listener, context)
        ends.shake_hands()
        ends.transport.write(b"x")
        ends.answers()
        session = ends.client.session
        if version is ssl.TLSVersion.TLSv1_3:
            assert session is None or not session.has_ticket
        assert listener.context.session_stats()["number"] == 0


def test_a_resumed_session_is_of_the_same_client_and_not_of_other_settings(authority: Authority) -> None:
    context = authority.client_context(authority.issue("x.example", common_name="x"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    listener = acceptor(authority.server_options(**authority.trusting()))
    first = Ends(listener, context)
    first.shake_hands()
    again = Ends(listener, context)
    again.client.session = first.client.session
    again.shake_hands()
    assert again.client.session_reused
    assert again.protocol.principal == first.protocol.principal != "User:ANONYMOUS"
    other = Authority()
    settings = TlsSettings.of(authority.server_options(**other.trusting()))
    listener.use(settings, settings.server_context())
    late = Ends(listener, context)
    late.client.session = first.client.session
    assert fails(late)
    assert late.protocol.principal == "User:ANONYMOUS"


def test_a_fault_of_the_connection_is_not_taken_for_one_of_tls(authority: Authority) -> None:
    ends = Ends(acceptor(authority.server_options()), authority.client_context())
    ends.shake_hands()

    def fail() -> None:
        raise OSError("the disk is full")

    ends.protocol.on_data = fail
    with pytest.raises(OSError, match="the disk is full"):
        ends.ask(b"x")


def test_closing_a_late_handshake_does_not_hide_the_next_one(authority: Authority) -> None:
    now = [0]
    listener = acceptor(authority.server_options(), lambda: now[0])
    late = [Ends(listener, authority.client_context()) for _ in range(50)]
    late[0].transport.connection_lost(None)
    now[0] = 30_000
    listener.sweep()
    assert [ends.socket.is_closing() for ends in late] == [False] + [True] * 49
    assert listener.failed_count == 49


def test_failures_of_one_address_are_told_once_and_then_counted_once_a_minute(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0]
    listener = acceptor(authority.server_options(), lambda: now[0])
    for _ in range(1000):
        Ends(listener, authority.client_context()).deliver(b"GET /")
    assert listener.failed_count == 1000
    assert len(caplog.records) == 1
    assert "192.0.2.7: this is not TLS" in caplog.records[0].getMessage()
    now[0] = 60_000
    listener.sweep()
    listener.sweep()
    assert len(caplog.records) == 2
    assert "999 more" in caplog.records[1].getMessage()


def test_a_certificate_that_takes_several_reads_of_openssl_is_taken(authority: Authority) -> None:
    names = [f"host-{number}.a-department-with-a-long-name.example" for number in range(1_200)]
    client = authority.issue(*names, common_name="large")
    assert len(client.cert_chain_pems[0].bytes()) > 64 * 1024
    for version in VERSIONS:
        context = authority.client_context(client)
        context.minimum_version = context.maximum_version = version
        ends = Ends(acceptor(authority.server_options(**authority.trusting())), context)
        ends.shake_hands()
        ends.ask(b"x")
        assert ends.protocol.received == b"x"
        assert ends.protocol.principal.startswith("User:CN=large,")


def test_a_connection_that_is_lost_in_the_handshake_is_counted(authority: Authority) -> None:
    listener = acceptor(authority.server_options())
    half = Ends(listener, authority.client_context())
    with pytest.raises(ssl.SSLWantReadError):
        half.client.do_handshake()
    half.deliver(half.outgoing.read()[:100])
    half.transport.connection_lost(ConnectionResetError())
    assert (listener.failed_count, len(listener.under_way)) == (1, 0)
