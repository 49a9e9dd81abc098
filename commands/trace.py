"""`odradek trace`: requests of clients and their responses, as a broker saw them."""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

from odradek.client.client_error import ClientError
from odradek.commands.selecting import parse_time_ms
from odradek.config.os_reason import reason_of

ABOUT = """\
Print the requests that clients have sent to a broker of Odradek, and its responses: decoded,
a line of JSON for each, without secrets. The broker has to be started with a test API
('odradek serve --test-api 9099'), and --test-api says where that is. There is no -b here: at
the address for clients a broker tells nobody of the requests of others.

A broker keeps nothing until it is asked to: -f begins, and prints each request when it is
answered; --record only begins. Without both the command prints what is kept, in the order of
arrival."""

EXAMPLES = """\
examples:
  odradek trace --test-api 9099 -f
  odradek trace --test-api 9099 -f --api Produce --topic orders
  odradek trace --test-api 9099 --record
                        keeps up to 10,000 requests, or 64 MB of them, from now on; the
                        oldest go first
  odradek trace --test-api 9099 --client-id shop --since -5m | jq .response
  odradek trace --test-api 9099 --stop
                        keeps none any more, and forgets those that were kept

keys: number api version client_id principal address listener client_software correlation_id
arrived_ms (ms since 1970) duration_ms outcome topics request response. Fields of request and
response have the names of the protocol in snake_case. The outcome is answered, waiting (for
its response), none (no response is sent), closed (the connection, before the response) or
failed. Records are shown as their batches; --record --with-records also keeps keys and values.

exit status: 0, or 1 when the broker does not answer, or keeps no requests."""

_POLL_SECONDS = 10.0
_CALL_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the test API is, and which requests are meant."""
    parser.add_argument(
        "--test-api",
        required=True,
        metavar="[HOST:]PORT",
        help="address of the test API of the broker (without a host: 127.0.0.1), or unix:PATH",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with requests as they are answered"
    )
    parser.add_argument("--api", metavar="NAME", help="only requests of this API, such as Produce")
    parser.add_argument("--topic", metavar="TOPIC", help="only requests that name it, also by its id")
    parser.add_argument("--client-id", metavar="ID", help="only requests of this client id")
    parser.add_argument(
        "--since", metavar="TIME", help="only requests that came then or later: -5m, 2026-11-30T09:00"
    )
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument("--record", action="store_true", help="begin to keep requests, and print none")
    changes.add_argument("--stop", action="store_true", help="end that, and forget them")
    parser.add_argument(
        "--with-records", action="store_true", help="with -f or --record: keep keys and values, too"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the requests; returns the exit status."""
    api = _TestApi(options.test_api)
    if options.stop:
        api.call("requests.stop", {})
    elif options.record:
        api.call("requests.record", {"with_records": options.with_records})
    elif options.follow:
        _follow(api, options)
    else:
        result = api.call("requests.all", _wanted(options))
        _tell_dropped(result["dropped"], 0)
        _print(_since(result["requests"], options))
    return 0


def _follow(api: "_TestApi", options: argparse.Namespace) -> None:
    wanted, dropped = _wanted(options), 0
    status = api.call("requests.status", {})
    if not status["recording"] or options.with_records:
        api.call("requests.record", {"with_records": options.with_records})
    # Those that are kept already come first, if a time is named.
    since = status["ended"] if options.since is None else 0
    while True:
        asked = {**wanted, "since": since, "timeout": _POLL_SECONDS}
        result = api.call("requests.follow", asked)
        since = result["next"]
        dropped = _tell_dropped(result["dropped"], dropped)
        _print(_since(result["requests"], options))


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    return {"api": options.api, "topic": options.topic, "client_id": options.client_id}


def _since(requests: list[dict[str, Any]], options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    if options.since is None:
        return requests
    first_ms = parse_time_ms(options.since, int(time.time() * 1000))
    return [one for one in requests if one["arrived_ms"] >= first_ms]


def _tell_dropped(dropped: int, before: int) -> int:
    """Says on stderr that more were dropped than before; returns their number."""
    if dropped > before:
        print(f"odradek: {dropped} older requests were dropped for newer ones", file=sys.stderr)
    return dropped


def _print(requests: Iterable[dict[str, Any]]) -> None:
    for one in requests:
        sys.stdout.write(json.dumps(one, ensure_ascii=False) + "\n")
    sys.stdout.flush()


class _TestApi:
    """The test API at an address. ClientError: it does not answer, or refuses."""

    def __init__(self, text: str) -> None:
        self._shown = text
        self._address = _address(text)

    def call(self, operation: str, arguments: dict[str, Any]) -> Any:
        from odradek.embedding.kit_calls import call_at
        from odradek.server.test_kit.kit import TestKitError

        try:
            return call_at(self._address, operation, arguments, _CALL_SECONDS)
        except TestKitError as error:
            raise ClientError(_sentence(str(error))) from None
        except OSError as error:
            raise ClientError(
                f"there is no test API at {self._shown}: {reason_of(error)}; a broker opens one with "
                "odradek serve --test-api"
            ) from None


def _sentence(refusal: str) -> str:
    if "no requests are recorded" in refusal:
        return "the broker keeps no requests: begin with odradek trace -f, or with --record"
    return refusal


def _address(text: str) -> tuple[str, int] | str:
    if text.startswith("unix:"):
        return text.removeprefix("unix:")
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"--test-api takes [HOST:]PORT or unix:PATH, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)
