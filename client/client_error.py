"""Failures of the client, each one sentence for a person; and the error codes of responses."""

from collections.abc import Iterator
from typing import Any

from odradek.wire.errors import ErrorCode, error_message, error_of
from odradek.wire.schema import Struct, fields_of


class ClientError(Exception):
    """A failure of the client, as one sentence for a person; `code` is the error of the broker, if any."""

    def __init__(self, sentence: str, code: ErrorCode | None = None) -> None:
        super().__init__(sentence)
        self.code = code

    # An exception that crosses from a Spark worker to the driver is pickled.
    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.code)


class Disconnected(ClientError):
    """The connection is lost, with all pending responses; a new connection may work."""


class NoBroker(Disconnected):
    """None of the known brokers can be reached at the moment."""


class Unreachable(ClientError):
    """No broker of the cluster can be asked, so the next request would end as this one."""


class Mismatch(Unreachable):
    """The port is not what the client's options say: the fault, and the remedy."""

    def __init__(self, address: str, fault: str, remedy: str) -> None:
        super().__init__(f"{address}: {fault}; {remedy}")
        self.address, self.fault, self.remedy = address, fault, remedy

    def __reduce__(self) -> Any:
        return type(self), (self.address, self.fault, self.remedy)


def error_codes(response: Struct) -> Iterator[ErrorCode]:
    """Every error code in a response, at any depth, that is not NONE."""
    for spec in fields_of(type(response)):
        value = getattr(response, spec.name)
        if spec.name.endswith("error_code"):
            if value != ErrorCode.NONE:
                yield error_of(value)
        elif isinstance(value, Struct):
            yield from error_codes(value)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for item in value:
                yield from error_codes(item)


def refusal(doing: str, code: int, message: str | None = None) -> ClientError:
    """The sentence for an error code: "DOING was refused: NAME (what it means)"."""
    error = error_of(code)
    return ClientError(
        f"{doing} was refused: {error.name} ({(message or error_message(error)).rstrip('.')})", error
    )
