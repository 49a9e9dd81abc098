"""`odradek doctor`: why does my client not connect."""

import argparse

from odradek.client.connecting import add_connection_arguments, client_settings
from odradek.client.diagnosis import Finding, diagnose, may_continue
from odradek.commands.output import Column, Output, add_output_arguments

ABOUT = """\
Go the way of a client to any Kafka broker, step by step, and name the first step that
fails, with a remedy: the name, the connection, what answers there, TLS and its certificate,
the login, the metadata, every address that brokers tell their clients, the coordinator of a
group, and with --write a record that is written and read."""

EXAMPLES = """\
examples:
  odradek doctor
  odradek doctor -b kafka.example:9093 --command-config client.properties
  odradek doctor -b localhost:9092 --write
                        makes a topic, writes a record, reads it, deletes the topic; also
                        compares the clocks
  odradek doctor --write --topic orders
                        writes its record there, where it stays

keys: step subject ok milliseconds detail fault remedy.

exit status: 0 when a client works, 1 when a step fails."""

_COLUMNS = [
    Column("step"),
    Column("subject"),
    Column("ok"),
    Column("milliseconds", "ms", True),
    Column("detail"),
    Column("fault"),
    Column("remedy"),
]
_INDENT = 28
"""Where the sentences stand."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--write`, and how the brokers are found."""
    parser.add_argument("--write", action="store_true", help="write and read a record, too")
    parser.add_argument("--topic", metavar="TOPIC", help="with --write: an existing topic to write to")
    add_connection_arguments(parser)
    add_output_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints each finding when it is there; returns the exit status."""
    output = Output.of(options)
    settings = client_settings(options)
    findings: list[Finding] = []
    for finding in diagnose(settings, writes=options.write or options.topic is not None, topic=options.topic):
        findings.append(finding)
        if output.is_table:
            _tell(output, finding)
    if not output.is_table:
        output.rows(_COLUMNS, map(_row, findings))
    is_well = may_continue(findings)
    output.line()
    output.line("A client works." if is_well else _verdict(findings))
    return 0 if is_well else 1


def _tell(output: Output, finding: Finding) -> None:
    mark, codes = (" ok ", "32") if finding.is_well else ("FAIL", "1;31")
    ms = f"{finding.seconds * 1000:,.0f} ms"
    told = f"{finding.subject}: {finding.fault or finding.detail}"
    output.line(f"  {finding.step:<10}  {ms:>8}  {told}", mark=mark, codes=codes, hanging=_INDENT)
    if finding.remedy:
        output.line(f"{'':{_INDENT}}-> {finding.remedy}", hanging=_INDENT + 3)
    output.out.flush()


def _verdict(findings: list[Finding]) -> str:
    first = next(one for one in findings if not one.is_well)
    return f"No client works: {first.step} is the first step that fails."


def _row(finding: Finding) -> dict[str, object]:
    return {
        "step": finding.step,
        "subject": finding.subject,
        "ok": finding.is_well,
        "milliseconds": round(finding.seconds * 1000, 1),
        "detail": finding.detail or None,
        "fault": finding.fault,
        "remedy": finding.remedy or None,
    }
