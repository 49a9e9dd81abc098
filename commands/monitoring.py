"""`odradek monitoring`: boards for Grafana, alerts and aliases for Prometheus, as files."""

import argparse
import os
import sys

from odradek.commands.output import output_failed
from odradek.config.os_reason import reason_of

ABOUT = """\
Write what watches brokers of this version into a directory: boards/*.json for Grafana 10
and later, alerts.yml for Prometheus, and aliases-*.yml, which are rules that give the
metrics the names that other boards ask for. Files of these names are replaced. The brokers
serve the metrics with 'odradek serve --metrics'."""

EXAMPLES = """\
examples:
  odradek monitoring /etc/prometheus/odradek
                        in prometheus.yml: rule_files: [odradek/alerts.yml]
  odradek monitoring monitoring
                        then import monitoring/boards/*.json in Grafana
  odradek monitoring .  here

exit status: 0, or 1 when a file cannot be written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to."""
    parser.add_argument("directory", metavar="DIRECTORY", help="where to write; it is made if need be")


def run(options: argparse.Namespace) -> int:
    """Writes the files, and prints their paths."""
    from odradek.server.metrics.monitoring_files import files

    try:
        written = [_write(os.path.join(options.directory, name), text) for name, text in files().items()]
    except OSError as error:
        print(f"odradek: {error.filename} cannot be written: {reason_of(error)}.", file=sys.stderr)
        return 1
    try:
        print(*written, sep="\n", flush=True)
    except OSError as error:
        return output_failed(error)
    return 0


def _write(path: str, text: str) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path
