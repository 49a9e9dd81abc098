"""Every transition and refusal of the transaction machine, as transcripts that a person can read."""

import os
import pathlib

import pytest

from odradek.coordinator.transactions.machine import TransactionMachine
from odradek.coordinator.transactions.state import COMES_FROM, TransactionState
from tests.coordinator.transaction_transcript import rewrite

TRANSCRIPTS = sorted((pathlib.Path(__file__).parent / "transaction_transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_machine_does_what_the_transcript_says(path):
    played = rewrite(path)
    if os.environ.get("ODRADEK_WRITE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == path.read_text()


def test_no_transition_is_missing(monkeypatch):
    shown = set()
    store = TransactionMachine._store

    def seen(machine, transactional_id, transaction, record, out):
        before = machine.transactions.get(transactional_id)
        shown.add((TransactionState.EMPTY if before is None else before.state, transaction.state))
        store(machine, transactional_id, transaction, record, out)

    monkeypatch.setattr(TransactionMachine, "_store", seen)
    for path in TRANSCRIPTS:
        rewrite(path)
    possible = {(before, after) for after, befores in COMES_FROM.items() for before in befores}
    assert {(one.label, other.label) for one, other in possible - shown} == set()
