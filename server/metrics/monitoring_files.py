"""Files with which Prometheus and Grafana watch a broker, from the table of metrics and two lists beside it.

The boards are those of `boards.py`, alerts and aliases those of `rules.py`. `odradek monitoring` writes them.

    python -m odradek.server.metrics.monitoring_files docs/monitoring.md

writes the table of alerts into that page.
"""

import json
import pathlib
import re
import sys

from odradek.server.metrics.boards import BOARDS, board_json
from odradek.server.metrics.rules import ALERTS, ALIASES, alert_table, alerts_yaml, aliases_yaml

_TABLE = re.compile(r"(?<=<!-- alerts -->\n).*?(?=<!-- end of alerts -->)", re.DOTALL)


def files() -> dict[str, str]:
    """Text by path, in the folder that they are written into."""
    return {
        **{f"boards/{board.name}.json": json.dumps(board_json(board), indent=1) + "\n" for board in BOARDS},
        "alerts.yml": alerts_yaml(ALERTS),
        **{f"aliases-{name}.yml": aliases_yaml(rules) for name, rules in ALIASES.items()},
    }


def with_alerts(page: str) -> str:
    """The page with the table of the alerts in its place."""
    assert _TABLE.search(page) is not None, "the page has no place for the alerts"
    return _TABLE.sub(lambda _: alert_table(ALERTS), page)


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.write_text(with_alerts(path.read_text()))
