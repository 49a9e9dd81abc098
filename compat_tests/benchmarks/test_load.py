"""What the load in C counts as a latency of the server, with a server that is as late as the test likes."""

import json
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable

import pytest

from benchmarks.frames import Frame, write_frames
from benchmarks.load import compile_load

LENGTH = struct.Struct(">i")
RATE = 1000
BEFORE = 500
"""So many answers come before that in the middle."""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compile_load(tmp_path_factory.mktemp("load"))


def answer(listening: socket.socket, in_the_middle: Callable[[], None]) -> None:
    """Answers one connection until it is closed; calls the function before the answer in the middle."""
    connection, _ = listening.accept()
    with connection, connection.makefile("rb") as requests:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        count = 0
        while head := requests.read(LENGTH.size):
            body = requests.read(LENGTH.unpack(head)[0])
            count += 1
            if count == BEFORE:
                in_the_middle()
            connection.sendall(LENGTH.pack(4) + body[4:8])


def measure(program, folder, answers: int, in_the_middle: Callable[[int], None]) -> dict[str, float]:
    """What the load says of so many answers of a server that calls `in_the_middle` with the load's process
    id.
    """
    frames = folder / "frames"
    write_frames(frames, [Frame(LENGTH.pack(12) + bytes(12))])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        command = [program, "-p", str(port), "-f", frames, "-r", str(RATE), "-n", str(answers), "-s", "60"]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE) as load:
            try:
                server = threading.Thread(target=answer, args=(listening, lambda: in_the_middle(load.pid)))
                server.start()
                output, _ = load.communicate(timeout=60)
            finally:
                load.kill()
                server.join()
    assert load.returncode == 0
    result: dict[str, float] = json.loads(output)
    assert result["requests"] >= answers
    return result


def test_a_late_answer_is_late_for_all_that_became_due_meanwhile(program, tmp_path):
    pause_s = 0.3
    result = measure(program, tmp_path, 1000, lambda _: threading.Event().wait(pause_s))
    assert result["max_us"] >= pause_s * 1e6
    # 300 of the 1,000, the last ones of them hardly.
    assert result["p99_us"] >= pause_s * 0.9 * 1e6


def test_what_the_load_was_late_with_is_not_the_fault_of_the_server(program, tmp_path):
    pause_s = 2.0
    pausing: list[threading.Timer] = []

    def stop(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        pausing.append(threading.Timer(pause_s, os.kill, (pid, signal.SIGCONT)))
        pausing[0].start()

    result = measure(program, tmp_path, 3000, stop)
    pausing[0].join()
    # 2,000 of the 3,000: half of all would be later than half a second. The latest of those that count says
    # nothing, as on a busy machine the server is late, too.
    assert result["sent_late"] >= RATE * pause_s * 0.9
    assert result["p50_us"] < 0.25e6
