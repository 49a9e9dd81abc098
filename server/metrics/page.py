"""`python -m odradek.server.metrics.page`: docs/metrics.md, from the table of families."""

from collections.abc import Iterator

from odradek.server.metrics.families import FAMILIES

_HEAD = """\
# Metrics

This page is made from `server/metrics/families.py` by `python -m odradek.server.metrics.page`.
[monitoring.md](monitoring.md) says how to use them: Prometheus, boards for Grafana, alerts, health checks.

`odradek serve --metrics [HOST:]PORT` serves them at `/metrics`, in the text format of Prometheus; without a
host at 127.0.0.1. In a file of options it is `odradek.metrics.listen`. At the same port are:

| page | content |
|---|---|
| `/health/live` | 200 while the event loop answers |
| `/health/ready` | 200 when clients are served; else 503, and the reasons, a line each |
| `/admin` | the state of the broker as JSON, without names of topics, groups or users |

GET and HEAD are served, at most 32 connections and 8 KiB of a request, and nobody logs in: let no stranger
reach the port.

More than `odradek.metrics.series.max` series (20,000) of partitions, or of committed offsets, are left out;
`odradek_metrics_series_omitted` says how many of which family, and the sums by topic stay. Internal topics
have no series of their own. Counters of topics begin with the start of the broker.

| name | type | labels | meaning | at most |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels) or "-"
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.help} | {family.bound} |\n"


if __name__ == "__main__":
    print(page(), end="")
