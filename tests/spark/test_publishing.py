"""Epochs into a table of files, with a kill before and behind each operation on files."""

import collections
import json
import os

import pytest

from odradek.spark.jobs.compaction import SizeRules, days_to_compact
from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.files import LocalFiles, read_note
from odradek.spark.jobs.publishing import EPOCHS_KEPT, STATE, Publisher

FOLDERS = ("topic=a/day=2026-01-01", "topic=a/day=2026-01-02", "topic=b/day=2026-01-01")
OPERATIONS = ("make_directory", "rename", "remove", "write_new")


class Killed(BaseException):
    pass


class KilledFiles(LocalFiles):
    """Dies at the operation with this number: before it, or when it is done."""

    def __init__(self, at=None, *, is_done=False, look=lambda: None):
        self.operations = 0
        self._at, self._is_done, self._look = at, is_done, look

    def step(self, operation, *, shows=False):
        number, self.operations = self.operations, self.operations + 1
        if number == self._at and not self._is_done:
            raise Killed
        result = operation()
        if shows:
            self._look()
        if number == self._at:
            raise Killed
        return result


def _stepping(name):
    def do(self, *arguments):
        return self.step(lambda: getattr(LocalFiles, name)(self, *arguments), shows=name == "rename")

    return do


for _name in OPERATIONS:
    setattr(KilledFiles, _name, _stepping(_name))


def spark_like_writer(files, rows, tasks):
    """Writes each row (a text) into the file of its folder and task, as Spark would call it."""

    def write(path):
        for task in range(tasks):
            files.step(lambda task=task: _write_task(path, rows, task, tasks))
        with open(f"{path}/_SUCCESS", "w"):
            pass
        return len(rows)

    return write


def _write_task(path, rows, task, tasks):
    for place, folder in enumerate(FOLDERS):
        os.makedirs(f"{path}/{folder}", exist_ok=True)
        mine = [row for row in rows if row % 3 == place and row // 3 % tasks == task]
        if mine:
            name = f"{path}/{folder}/part-{task:05d}-0f3c-c123-99.c000.snappy.parquet"
            with open(name, "w") as file:
                json.dump(mine, file)


def rows_in(table):
    """What a reader sees who knows only that names with _ and . in front are hidden."""
    found = []
    for folder, folders, names in os.walk(table):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in names:
            if not name.startswith(("_", ".")):
                with open(os.path.join(folder, name)) as file:
                    found += json.load(file)
    return sorted(found)


def run(table, files, epochs, tasks):
    publisher = Publisher(files, str(table))
    for number, rows in enumerate(epochs):
        publisher.publish(number, spark_like_writer(files, rows, tasks))


EPOCHS = (list(range(9)), [], list(range(9, 13)))
ALL = list(range(13))


def test_every_epoch_is_in_the_table_under_names_of_epoch_and_task(tmp_path):
    run(tmp_path, KilledFiles(), EPOCHS, tasks=2)
    assert rows_in(tmp_path) == ALL
    assert sorted(os.listdir(tmp_path / FOLDERS[0])) == [
        f"part-{epoch:010d}-{task:05d}.c000.snappy.parquet"
        for epoch, task in ((0, 0), (0, 1), (2, 0), (2, 1))
    ]
    assert os.listdir(tmp_path / STATE / "staging") == []


@pytest.mark.parametrize("is_done", [False, True])
def test_a_kill_at_any_operation_loses_and_doubles_nothing(tmp_path, is_done):
    counting = KilledFiles()
    run(tmp_path / "whole", counting, EPOCHS, tasks=2)
    for at in range(counting.operations):
        table = tmp_path / str(at)

        def look(table=table):
            doubled = [row for row, times in collections.Counter(rows_in(table)).items() if times > 1]
            assert not doubled

        with pytest.raises(Killed):
            run(table, KilledFiles(at, is_done=is_done, look=look), EPOCHS, tasks=2)
        # Spark runs the last epoch again, and a change of the plan may give it other files.
        run(table, KilledFiles(look=look), EPOCHS, tasks=3)
        assert rows_in(table) == ALL, at


def test_an_epoch_that_was_decided_is_not_written_again(tmp_path):
    publisher = Publisher(KilledFiles(), str(tmp_path))
    first, is_new = publisher.publish(7, spark_like_writer(publisher.files, ALL, 2))
    assert (is_new, first.rows, len(first.files)) == (True, 13, 6)
    again, is_new = publisher.publish(7, lambda path: pytest.fail("it was written again"))
    assert (is_new, again) == (False, first)
    assert rows_in(tmp_path) == ALL


def test_what_compaction_took_away_does_not_come_back_with_its_epoch(tmp_path):
    publisher = Publisher(KilledFiles(), str(tmp_path))
    publisher.publish(0, spark_like_writer(publisher.files, ALL, 1))
    os.unlink(tmp_path / FOLDERS[0] / "part-0000000000-00000.c000.snappy.parquet")
    publisher.publish(0, lambda path: pytest.fail("it was written again"))
    assert rows_in(tmp_path) == [row for row in ALL if row % 3]


def test_old_decisions_go(tmp_path):
    publisher = Publisher(KilledFiles(), str(tmp_path))
    for number in range(EPOCHS_KEPT + 5):
        publisher.publish(number, lambda path: 0)
    assert len(os.listdir(tmp_path / STATE / "epochs")) == EPOCHS_KEPT


def test_a_damaged_decision_is_refused(tmp_path):
    publisher = Publisher(KilledFiles(), str(tmp_path))
    publisher.publish(0, lambda path: 0)
    (tmp_path / STATE / "epochs" / "0000000000.json").write_text("{")
    with pytest.raises(JobError, match="damaged"):
        publisher.publish(0, lambda path: 0)


def test_a_second_writer_of_a_table_is_refused(tmp_path):
    files, path = LocalFiles(), f"{tmp_path}/{STATE}/lock"
    with files.lock(path), pytest.raises(JobError, match=f"another job is writing the table at {tmp_path}"):
        files.lock(path)
    files.lock(path).close()


def test_days_with_enough_small_files_are_compacted(tmp_path):
    def put(folder, name, size_bytes):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_bytes(b"x" * size_bytes)

    for number in range(4):
        put(FOLDERS[0], f"part-{number:010d}-00000.parquet", 10)
        put(FOLDERS[1], f"part-{number:010d}-00000.parquet", 10 if number < 2 else 100)
    put(FOLDERS[0], "part-0000000009-00000.parquet", 100)
    put("_odradek/staging/1/topic=a", "part-0.parquet", 10)
    days = days_to_compact(LocalFiles(), str(tmp_path), SizeRules(50, 1000, 3))
    assert [(day.path, len(day.small), day.small_bytes, day.kept) for day in days] == [
        (f"{tmp_path}/{FOLDERS[0]}", 4, 40, ["part-0000000009-00000.parquet"])
    ]


def test_two_directories_change_names(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    LocalFiles().exchange(f"{tmp_path}/one", f"file://{tmp_path}/other")
    assert (os.listdir(tmp_path / "one"), os.listdir(tmp_path / "other")) == (["other"], ["one"])
    with pytest.raises(OSError, match="No such file"):
        LocalFiles().exchange(f"{tmp_path}/one", f"{tmp_path}/none")


@pytest.mark.parametrize("damaged", [b"", b'{"topics": [', b"[1]", b"null", b"\xff\xfe"])
def test_a_damaged_note_is_refused_with_its_name(tmp_path, damaged):
    files, path = LocalFiles(), f"{tmp_path}/state/latest.json"
    assert read_note(files, path) is None
    files.write_new(path, '{"buckets": 4}')
    assert read_note(files, path) == {"buckets": 4}
    (tmp_path / "state" / "latest.json").write_bytes(damaged)
    with pytest.raises(JobError, match=r"latest\.json is damaged"):
        read_note(files, path)
