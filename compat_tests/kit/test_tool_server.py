"""A program in the resident virtual machine prints and ends as it does in a process of its own."""

from __future__ import annotations

import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.kit.java import compiled
from compat_tests.kit.tool_server import ToolServers
from compat_tests.reference import CURRENT, OLDER, kafka_tool, tool_command
from compat_tests.stories import topic_name
from tests.tiers import rest_at_night

TOOLS = "org.apache.kafka.tools"
TRICKS = """
import java.io.*;
import java.util.*;

public class Tricks {
    static int runs = 0;

    public static void main(String[] words) throws Exception {
        System.out.print(words[0] + " " + System.getProperty("left.behind") + "\\u00e9\\n");
        System.setProperty("left.behind", "yes");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
        switch (words[0]) {
            case "read": System.out.print(new String(System.in.readAllBytes())); System.in.close(); break;
            case "throw": throw new IllegalStateException("thrown", new IOException("cause"));
            case "close": System.out.close(); break;
            case "thread": new Thread(() -> { sleep(50); System.out.println("late"); }).start(); break;
            case "stay": stay(); break;
            case "hang": sleep(600_000); break;
            case "redirect": System.setOut(new PrintStream(new ByteArrayOutputStream())); break;
            default: break;
        }
        System.err.println("the end of " + words[0]);
    }

    private static void stay() {
        Thread stays = new Thread(() -> sleep(600_000));
        stays.setDaemon(true);
        stays.start();
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException ended) {
            throw new IllegalStateException(ended);
        }
    }
}
"""
TIME = re.compile(r"^[\d:.]{12} |^\[[^]]*\] ", re.MULTILINE)
"""Of a line of the log."""
TRIED = ("read", "throw", "close", "thread", "stay", "redirect", "none")


class Alone:
    """Programs in processes of their own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def run(self, *words: str, given: str = "") -> tuple[int, str, str]:
        command = [reference.programs().java, *reference.SMALL_JVM, "-cp", str(self.folder), *words]
        finished = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
        return finished.returncode, finished.stdout, finished.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    source = tmp_path_factory.mktemp("tricks") / "Tricks.java"
    source.write_text(TRICKS)
    return compiled("", source)


@pytest.fixture(scope="module")
def servers() -> Iterator[ToolServers]:
    made = ToolServers(reference.class_path(), reference.fast_start(CURRENT))
    yield made
    made.close()


def outcome(finished: subprocess.CompletedProcess[bytes]) -> tuple[int, str, str]:
    return finished.returncode, finished.stdout.decode(), finished.stderr.decode()


def test_one_after_the_other_prints_and_ends_as_in_a_process(
    servers: ToolServers, folder: pathlib.Path
) -> None:
    alone = Alone(folder)
    for trick in TRIED:
        ours = servers.run([str(folder), "Tricks", trick, "a b"], b"a line\nand more")
        assert outcome(ours) == alone.run("Tricks", trick, "a b", given="a line\nand more"), trick


def test_one_that_hangs_takes_its_server_with_it(servers: ToolServers, folder: pathlib.Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        servers.run([str(folder), "Tricks", "hang"], timeout_seconds=0.5)
    assert outcome(servers.run([str(folder), "Tricks", "none"]))[0] == 0


def test_a_class_that_is_not_there_is_missing_alike(servers: ToolServers, folder: pathlib.Path) -> None:
    ours = servers.run([str(folder), "Nowhere"])
    assert outcome(ours) == Alone(folder).run("Nowhere")


@pytest.mark.parametrize("version", rest_at_night(CURRENT, OLDER))
def test_kafkas_tools_print_and_end_as_in_a_process(bootstrap: str, version: str) -> None:
    """What changes, what fails, what cannot be understood, what reads its input, what reads the topic."""
    topic, server = topic_name("resident"), ("--bootstrap-server", bootstrap)
    producer = f"{TOOLS}.ConsoleProducer" if version == CURRENT else "kafka.tools.ConsoleProducer"
    creation = (f"{TOOLS}.TopicCommand", *server, "--create", "--topic", topic, "--partitions", "2")
    reading = ("--from-beginning", "--max-messages", "1")
    commands = [
        creation,
        (f"{TOOLS}.TopicCommand", *server, "--create", "--topic", topic),
        (f"{TOOLS}.TopicCommand", *server, "--nonsense"),
        (producer, *server, "--topic", topic),
        (f"{TOOLS}.consumer.ConsoleConsumer", *server, "--topic", topic, *reading),
    ]
    for command in commands:
        ours = kafka_tool(*command, version=version, stdin="a line\n", check=False)
        if command == creation:
            kafka_tool(f"{TOOLS}.TopicCommand", *server, "--delete", "--topic", topic, version=version)
        alone = tool_command(*command, version=version)
        theirs = subprocess.run(alone, input="a line\n", capture_output=True, text=True)
        told = [(one.returncode, TIME.sub("", one.stdout), one.stderr) for one in (ours, theirs)]
        assert told[0] == told[1], command
