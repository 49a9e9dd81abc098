"""The text that Prometheus reads (format 0.0.4), made in pieces: the event loop serves clients in between."""

from collections.abc import Iterable, Iterator

from odradek.server.metrics.families import CLIENT_FAMILY, CLIENT_PREFIX, FAMILY

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PIECE_SAMPLES = 500
"""Lines that are made without a pause: 0.3 ms on the machine of benchmarks/RESULTS.md."""

Sample = tuple[str, str, float | int]
"""Name of the family (with a suffix of a histogram), text of the labels, value."""

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_SUFFIXES = ("_bucket", "_sum", "_count")


def label_text(**labels: object) -> str:
    """`{topic="orders",partition="0"}`; nothing for no labels."""
    if not labels:
        return ""
    inner = ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inner}}}"


def pieces(samples: Iterable[Sample | None]) -> Iterator[str]:
    """The text, piece by piece; None among the samples ends a piece. All samples of a family come one after
    the other. A name without a family is an AssertionError: docs/metrics.md would not have it.
    """
    lines: list[str] = []
    last_name, begun = "", set[str]()
    for sample in samples:
        if sample is not None:
            name, labels, value = sample
            if name != last_name:
                last_name, family = name, _family_of(name)
                if family not in begun:
                    begun.add(family)
                    lines.append(_head(family))
            lines.append(f"{name}{labels} {value}\n")
        if sample is None or len(lines) >= PIECE_SAMPLES:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def _head(family: str) -> str:
    told = FAMILY[CLIENT_FAMILY] if family.startswith(CLIENT_PREFIX) else FAMILY[family]
    return f"# HELP {family} {told.help}\n# TYPE {family} {told.kind}\n"


def _family_of(name: str) -> str:
    if name in FAMILY or name.startswith(CLIENT_PREFIX):
        return name
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and FAMILY[name.removesuffix(suffix)].kind == "histogram":
            return name.removesuffix(suffix)
    raise AssertionError(f"{name} is not in the table of families")
