"""`odradek serve --workers N` as processes, whose workers can be killed one by one."""

import os
import pathlib
import re
import signal
import subprocess
import sys

from tests.server.scrape import until

READY = re.compile(
    r"odradek \S+ ready on (.+) \((\d+) workers, nodes (\d+) to (\d+), cluster (\S{22}), data (.+)\)"
)
READY_ALONE = re.compile(r"odradek \S+ ready on (.+) \(node (\d+), cluster (\S{22}), data (.+)\)")
RUNS = re.compile(r"worker (\d+) \(node \d+\) runs as process (\d+)")
SERVES = re.compile(r"worker (\d+) \(node \d+\) serves, process (\d+)")
CONTROLLER = re.compile(r"controller \d+ at (\S+)/controller:1 leads")


def environment(**more):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    return {**environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}


def is_alive(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Workers:
    """The parent and its workers; 1 is a node alone. `stop` ends them if they run."""

    def __init__(self, folder, count, *arguments, **environ):
        self.folder = folder
        self.count = count
        self.arguments = ["--workers", str(count), *arguments]
        if not any("log.dirs=" in one for one in arguments):
            self.arguments += ["--data-dir", str(folder / "data")]
        self.arguments += ["--set", "group.initial.rebalance.delay.ms=0"]
        if not any("listeners=" in one or one == "--listen" for one in arguments):
            self.arguments += ["--listen", "127.0.0.1:0"]
        self.environ = environ
        self.pass_fds = ()
        self.out, self.err = folder / "out", folder / "err"

    def begin(self):
        """Starts the parent and does not wait."""
        command = [sys.executable, "-m", "odradek", "serve", *self.arguments]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment(**self.environ),
                pass_fds=self.pass_fds,
            )
        return self

    def start(self):
        """Returns when the line says that all are ready."""
        self.begin()
        until(lambda: self.ready is not None or self.process.poll() is not None, bool)
        assert self.ready is not None, self.said()
        self.addresses = self.ready[1].split(", ")
        return self

    @property
    def ready(self):
        return (READY if self.count > 1 else READY_ALONE).search(self.out.read_text())

    @property
    def bootstrap_servers(self):
        return ",".join(self.addresses)

    def said(self):
        return self.err.read_text()

    @property
    def pids(self):
        """The newest process of each worker, by its index."""
        return {int(index): int(pid) for index, pid in RUNS.findall(self.said())}

    @property
    def socket_folder(self):
        return pathlib.Path(CONTROLLER.search(self.said())[1])

    def kill(self, index):
        """kill -9 of a worker; its former process."""
        pid = self.pids[index]
        os.kill(pid, signal.SIGKILL)
        return pid

    def serving(self):
        """The processes of each worker that have been unfenced, the newest last."""
        found = {index: [] for index in range(self.count)}
        for index, pid in SERVES.findall(self.said()):
            found[int(index)].append(int(pid))
        return found

    def kill_and_wait(self, index):
        """kill -9 of a worker. Returns when the next one serves."""
        before = len(self.serving()[index])
        self.kill(index)
        until(lambda: len(self.serving()[index]), lambda count: count > before)

    def end(self, number=signal.SIGTERM):
        """Its status."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def stop(self):
        if self.process.poll() is None:
            self.end()
        # Whatever a test has done to the parent.
        until(self.left, lambda pids: not pids)

    def left(self):
        """Processes of workers that run."""
        return [int(pid) for _, pid in RUNS.findall(self.said()) if is_alive(int(pid))]
