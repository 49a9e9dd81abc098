"""`odradek spark` as far as it goes without Spark."""

import subprocess
import sys
import textwrap

import pytest

from odradek.server import cli


@pytest.mark.parametrize("job", ["archive", "replay", "mirror", "verify", "latest", "profile"])
def test_help_has_examples_and_fits_a_terminal(capsys, monkeypatch, job):
    monkeypatch.setenv("COLUMNS", "110")
    with pytest.raises(SystemExit) as ended:
        cli.main(["spark", job, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert f"usage: odradek spark {job}" in out
    assert max(map(len, out.splitlines())) <= 110


def test_without_a_job_the_usage_is_shown(capsys):
    assert cli.main(["spark"]) == 2
    assert "archive" in capsys.readouterr().err


def test_the_list_of_commands_names_spark(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "jobs on Spark (pip install 'odradek[spark]')" in capsys.readouterr().out


def test_without_pyspark_one_sentence_says_what_to_install():
    script = """
        import sys
        sys.modules["pyspark"] = None  # what is not installed
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *a: None if name == "pyspark" else found(name, *a)
        from odradek.server.cli import main
        sys.exit(main(["spark", "verify", "--bootstrap-servers", "b:1", "--topic", "t", "--table", "d"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    needs = "odradek spark needs PySpark: pip install 'odradek[spark]', and a Java runtime (17 or later)"
    assert done.stderr == f"odradek: {needs}\n"


def test_importing_the_jobs_imports_neither_pyspark_nor_pyarrow():
    script = (
        "import sys, odradek.spark.cli, odradek.spark.jobs.archive, odradek.spark.jobs.mirror;"
        "sys.exit(bool({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        check=False,
    )
    assert done.returncode == 0


def test_the_file_for_spark_submit_is_the_command_line_and_hides_no_module_of_others():
    script = """
        import os, runpy, sys
        from importlib.util import find_spec
        file = find_spec("odradek.spark.cli").origin.replace("cli.py", "__main__.py")
        sys.path.insert(0, os.path.dirname(file))  # as Python does with the file that it is started with
        sys.argv = [file, "profile", "--help"]
        try:
            runpy.run_path(file, run_name="__main__")
        except SystemExit as ended:
            sys.exit(ended.code or int(find_spec("progress") is not None))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: odradek spark profile")
