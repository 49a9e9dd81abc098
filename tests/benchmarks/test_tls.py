"""The comparison of TLS layers, small and once: so that it does not rot unseen."""

import pytest

from benchmarks import tls


@pytest.mark.deep
def test_each_case_is_measured_for_each_way(tmp_path, capsys):
    tls.main(["--rounds", "1", "--scale", "0.01", "--work", str(tmp_path)])
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == list(tls.CASES)
    assert all(way in line for line in told for way in tls.WAYS)
    assert list(tmp_path.iterdir()) == []
