"""Makes what watches a broker with Prometheus and Grafana, from the table of metrics and two lists beside it.

    python -m tools.monitoring             writes monitoring/ and the table of alerts in docs/monitoring.md

The boards are of `tools/monitoring_boards.py`, alerts and aliases of `tools/monitoring_rules.py`.
"""

from __future__ import annotations

import json
import pathlib
import re

from tools.monitoring_boards import BOARDS, board_json
from tools.monitoring_rules import ALERTS, ALIASES, alert_table, alerts_yaml, aliases_yaml

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/monitoring.md"
_TABLE = re.compile(r"(?<=<!-- alerts -->\n).*?(?=<!-- end of alerts -->)", re.DOTALL)


def files() -> dict[str, str]:
    """Text by path in the checkout."""
    page = (CHECKOUT / PAGE).read_text()
    assert _TABLE.search(page) is not None, f"{PAGE} has no place for the alerts"
    return {
        **{
            f"monitoring/boards/{board.name}.json": json.dumps(board_json(board), indent=1) + "\n"
            for board in BOARDS
        },
        "monitoring/alerts.yml": alerts_yaml(ALERTS),
        **{f"monitoring/aliases-{name}.yml": aliases_yaml(rules) for name, rules in ALIASES.items()},
        PAGE: _TABLE.sub(lambda _: alert_table(ALERTS), page),
    }


def main() -> None:
    """Writes the files."""
    for path, text in files().items():
        (CHECKOUT / path).parent.mkdir(parents=True, exist_ok=True)
        (CHECKOUT / path).write_text(text)


if __name__ == "__main__":
    main()
