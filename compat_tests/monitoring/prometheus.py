"""A Prometheus on loopback, with the configuration of docs/monitoring.md; and promtool.

Debian: prometheus.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

from odradek.embedding.free_port import free_port
from odradek.server.metrics.monitoring_files import files
from tools import environment

JOB = "odradek"
PATIENCE_S = 180.0
"""For all that is waited for. The machine may have much else to do."""
DAY_MS = 86_400_000
"""For what must not run out while the tests run, however slow the machine is."""
SCRAPE_S = 5
"""A scrape may take as long. One that takes longer fails: for Prometheus the broker is down then."""
RATE_S = 4 * SCRAPE_S
"""Over which Grafana takes rates."""
PAUSE_S = 0.02
RULES = {name: text for name, text in files().items() if name.endswith(".yml")}
"""Rule files: text by name."""
_CONFIGURATION = re.compile(r"```yaml\n(rule_files:.*?)```", re.DOTALL)
T = TypeVar("T")


def until(ask: Callable[[], T], holds: Callable[[T], bool], what: str) -> T:
    """The first answer for which that holds; fails with `what` and the last one when none comes in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(answer := ask()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}; at last {answer}"
        time.sleep(PAUSE_S)
    return answer


def missing() -> str | None:
    """Why the tests cannot run; None: they can."""
    for name in ("prometheus", "promtool"):
        if environment.system_program(name) is None:
            return f"missing: {name} (Debian: apt-get install prometheus)"
    return None


def promtool(*arguments: str | pathlib.Path, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Runs it to its end, whatever that is."""
    program = environment.system_program("promtool")
    assert program is not None
    return subprocess.run(
        [program, *map(str, arguments)], input=stdin.decode(), capture_output=True, text=True, check=False
    )


def write_rules(directory: pathlib.Path) -> None:
    for name, text in RULES.items():
        (directory / name).write_text(text)


def configuration() -> str:
    """What docs/monitoring.md tells people to write."""
    found = _CONFIGURATION.search((environment.CHECKOUT / "docs/monitoring.md").read_text())
    assert found is not None
    return found[1]


class Prometheus:
    """Use as a context manager. Reads the targets (HOST:PORT) with all rule files."""

    def __init__(self, directory: pathlib.Path, targets: Sequence[str]) -> None:
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        write_rules(directory)
        text = configuration()
        for old, new in (
            ("  - alerts.yml\n", "".join(f"  - {name}\n" for name in RULES)),
            ("scrape_interval: 15s", f"scrape_interval: {SCRAPE_S}s"),
            ('["10.0.0.5:9644", "10.0.0.6:9644", "10.0.0.7:9644"]', json.dumps(list(targets))),
        ):
            assert old in text, f"docs/monitoring.md has no {old}"
            text = text.replace(old, new)
        self.file = directory / "prometheus.yml"
        self.file.write_text(f"global:\n  evaluation_interval: 1s\n{text}")

    def __enter__(self) -> Prometheus:
        program = environment.system_program("prometheus")
        assert program is not None
        self._log = (self._directory / "output").open("wb")
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={self.file}",
                f"--storage.tsdb.path={self._directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--log.level=warn",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        until(self._answers, bool, "Prometheus answers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._log.close()

    def query(self, expression: str) -> list[float]:
        """The values that are numbers now. ValueError with what Prometheus says if it is no expression."""
        answer = self._get("query", query=expression)
        if answer["status"] != "success":
            raise ValueError(f"{expression}: {answer['error']}")
        values = [float(one["value"][1]) for one in answer["data"]["result"]]
        return [value for value in values if not math.isnan(value)]

    def label_values(self, label: str, selector: str) -> list[str]:
        """As Grafana asks for the values of a variable."""
        found: list[str] = self._get(f"label/{label}/values", **{"match[]": selector})["data"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Those that it evaluates, with `health` and `lastError`."""
        groups = self._get("rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as refused:
            found = json.load(refused)
        return found

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "output").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
