"""`odradek spark`: the jobs on Spark, which have a command line of their own."""

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command line after `odradek spark`; returns the exit status."""
    from odradek.spark.cli import main

    return main(arguments)
