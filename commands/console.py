"""`odradek console`: pages about a cluster for a browser, served until a signal ends it."""

import argparse
import os
import sys
from dataclasses import replace

from odradek.client.client_error import ClientError
from odradek.client.connecting import add_connection_arguments, client_settings, options_of, settings_of
from odradek.client.settings import ClientSettings
from odradek.commands.schemas import add_schema_arguments, schemas_of
from odradek.commands.selecting import parse_whole

DEFAULT_LISTEN = "127.0.0.1:9080"
ABOUT = """\
A web console for any Kafka cluster: topics, messages, groups, options, in a browser.

It is a Kafka client. With SASL each person logs in with the user and password of a client, and
sees and does what that user may see and do; the brokers' ACLs decide. Without SASL the console
listens at loopback only, as nobody is asked who they are."""

EXAMPLES = """\
examples:
  odradek console                         the cluster at localhost:9092, on http://127.0.0.1:9080
  odradek console -b kafka.example:9092 --listen 9081
  odradek console -b kafka.example:9093 -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512
                                          with a page to log in
  odradek console --profile live --read-only --hide-messages
                                          health without contents, whoever logs in
  odradek console --listen 0.0.0.0:9080 --host console.example --profile live
                                          for others, who log in; a proxy with TLS before it

exit status: 0 or 143 when a signal has ended it, 1 when it cannot start (a sentence says why)."""

_NO_EXTRA = (
    "the console needs packages that are not installed: pip install 'odradek[console]' ({missing} is missing)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_connection_arguments(parser)
    group = parser.add_argument_group("console")
    group.add_argument(
        "--listen",
        metavar="[HOST:]PORT",
        default=DEFAULT_LISTEN,
        help=f"where browsers find it (default {DEFAULT_LISTEN})",
    )
    group.add_argument(
        "--host",
        action="append",
        default=[],
        dest="hosts",
        metavar="NAME",
        help="a name under which browsers reach it, beside localhost and addresses; may be given many times",
    )
    group.add_argument("--read-only", action="store_true", help="change nothing, whoever asks")
    group.add_argument("--hide-messages", action="store_true", help="read no message, whoever asks")
    group.add_argument(
        "--anonymous",
        action="store_true",
        help="nobody logs in: all who reach the console use the connection of this command",
    )
    group.add_argument("--tls-certificate", metavar="FILE", help="serve https with this certificate (PEM)")
    group.add_argument("--tls-key", metavar="FILE", help="its key (PEM), without a password")
    add_schema_arguments(parser)
    group.add_argument(
        "--fd",
        action="append",
        default=[],
        dest="descriptors",
        metavar="N",
        help="a listening socket that this process was started with, in place of --listen; may be given many "
        "times",
    )
    group.add_argument(
        "--admin",
        metavar="DIR",
        help="a directory with sockets at which brokers tell more than Kafka's protocol does: odradek serve "
        "--console has one",
    )
    group.add_argument(
        "--idle-seconds", metavar="N", help="end after so long without a request (default: never)"
    )


def run(options: argparse.Namespace) -> int:
    """Serves; returns the exit status."""
    try:
        from odradek.console.running import Life, bound, handed_over, serve
        from odradek.console.settings import ConsoleSettings, check_listener
    except ModuleNotFoundError as error:
        raise ClientError(_NO_EXTRA.format(missing=error.name)) from None
    if bool(options.tls_certificate) != bool(options.tls_key):
        raise ClientError("--tls-certificate and --tls-key belong together")
    client, mechanism = _client(options)
    host, port = _listen(options.listen)
    settings = ConsoleSettings(
        client=client,
        read_only=options.read_only,
        hides_messages=options.hide_messages,
        is_anonymous=options.anonymous,
        hosts=frozenset([*options.hosts, host]),
        mechanism=mechanism,
        schemas=schemas_of(options),
        admin_folder=options.admin,
    )
    if options.descriptors:
        listening = [handed_over(parse_whole(one, "--fd", 0, 2**20)) for one in options.descriptors]
        for one in listening:
            check_listener(settings, str(one.getsockname()[0]))
    else:
        check_listener(settings, host)
        listening = [bound(host, port)]
    idle_s = None
    if options.idle_seconds is not None:
        idle_s = parse_whole(options.idle_seconds, "--idle-seconds", 1, 10**9)
    lifeline = _lifeline()
    host, port = listening[0].getsockname()[:2]
    scheme = "https" if options.tls_certificate else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def tell() -> None:
        # A broker that has started this process says itself where it is.
        if lifeline is None:
            print(f"odradek: the console is at {url}", file=sys.stderr, flush=True)

    try:
        serve(
            settings,
            listening,
            certificate=options.tls_certificate,
            key=options.tls_key,
            started=tell,
            life=Life(idle_s, lifeline),
        )
    finally:
        for one in listening:
            one.close()
    return 0


def _lifeline() -> int | None:
    """The descriptor whose other end closes when the parent ends, as of `odradek serve`."""
    text = os.environ.pop("ODRADEK_LIFELINE_FD", "")
    return int(text) if text.isdigit() else None


def _client(options: argparse.Namespace) -> tuple[ClientSettings, str]:
    """Settings of the connection, and the mechanism with which people log in. A user and a password among the
    options are not used for them, and not needed."""
    from odradek.console.doors import WITH_PASSWORD

    if options.anonymous:
        return client_settings(options), ""
    named = options_of(options, asks=False)
    mechanism = named.get("sasl.mechanism", "")
    if not named.get("security.protocol", "").upper().startswith("SASL_"):
        return settings_of(options, named), ""
    if mechanism not in WITH_PASSWORD:
        raise ClientError(
            f"people log in with a password: sasl.mechanism has to be one of {', '.join(WITH_PASSWORD)}, "
            f"and is {mechanism or 'not set'}"
        )
    for name in ("sasl.jaas.config", "sasl.username", "sasl.password"):
        named.pop(name, None)
    # Options of security are checked as a whole, with somebody who would log in.
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    named["sasl.jaas.config"] = (
        f'org.apache.kafka.common.security.{module}LoginModule required username="nobody" password="nothing";'
    )
    settings = settings_of(options, named)
    return replace(settings, security=replace(settings.security, credentials=None)), mechanism


def _listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else ""
    return host or "127.0.0.1", parse_whole(port, "the port of --listen", 0, 65_535)
