"""Judges a commit message: `part: what it does`, and a body that says why where the change is large.

    python -m tools.commit_message          of HEAD; a checkout without a history is passed over
    python tools/commit_message.py FILE     of the commit that is being made: `tools/hooks/commit-msg`

This file imports nothing of ours: git runs it with any Python.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
SUBJECT_LENGTH_MAX = 72
LINES_WITHOUT_BODY_MAX = 50
SUBJECT = re.compile(r"[a-z][\w./-]*(?:,? [\w./-]+)*: \S.*")
GITS_OWN = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
"""Beginnings of subjects that git writes."""
SCISSORS = "# ------------------------ >8 ------------------------"
"""Whatever follows is no part of the message: `git commit --verbose`."""
TRAILER = re.compile(r"[A-Z][\w-]*-[Bb]y: .*")


def complaints(message: str, changed_lines: int) -> list[str]:
    """Sentences that say what to write instead."""
    text = message.partition(SCISSORS)[0]
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("#")]
    subject, *rest = "\n".join(lines).strip().splitlines() or [""]
    if subject.startswith(GITS_OWN):
        return []
    found = []
    if not SUBJECT.fullmatch(subject):
        found.append(f"write `part: what it does`, not {subject!r}")
    if len(subject) > SUBJECT_LENGTH_MAX:
        found.append(f"the subject has {len(subject)} characters: write at most {SUBJECT_LENGTH_MAX}")
    if rest and rest[0]:
        found.append("leave a line empty after the subject")
    body = [line for line in rest if line and not TRAILER.fullmatch(line)]
    if changed_lines > LINES_WITHOUT_BODY_MAX and not body:
        found.append(f"the change has {changed_lines} lines: write a body that says why")
    return found


def changed_lines(numstat: str) -> int:
    """Added and removed lines, from git's `--numstat`; binary files have none."""
    numbers = [number for line in numstat.splitlines() for number in line.split("\t")[:2]]
    return sum(int(number) for number in numbers if number.isdecimal())


def complaints_of_head(checkout: pathlib.Path) -> list[str]:
    """None where the checkout has no history: it may be a tarball, perhaps inside another repository."""
    try:
        if pathlib.Path(_git(checkout, "rev-parse", "--show-toplevel").strip()) != checkout.resolve():
            return []
        parents, _, message = _git(checkout, "show", "-s", "--format=%P%n%B", "HEAD").partition("\n")
    except (OSError, subprocess.CalledProcessError):
        return []
    if not parents:
        # Of a shallow clone: the whole tree would be the change.
        return complaints(message, 0)
    if " " in parents:
        return []
    return complaints(message, changed_lines(_git(checkout, "show", "--numstat", "--format=", "HEAD")))


def _git(checkout: pathlib.Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(arguments: list[str]) -> int:
    if arguments:
        change = _git(pathlib.Path.cwd(), "diff", "--cached", "--numstat")
        found = complaints(pathlib.Path(arguments[0]).read_text(), changed_lines(change))
    else:
        found = complaints_of_head(CHECKOUT)
    for sentence in found:
        print(f"commit message: {sentence} (CONTRIBUTING.md)", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
