"""The fixture `odradek_cluster`, run by a pytest of its own, as a user's project runs it."""

from __future__ import annotations

import re

import pytest

from tools import environment

pytest_plugins = ["pytester"]

STORY = """
    import pytest
    from kafka import KafkaProducer

    seen = []

    def test_a_cluster_of_three_with_options(odradek_cluster):
        cluster = odradek_cluster(nodes=3, num_partitions=2)
        seen.append(cluster)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            producer.send("t", b"x", partition=1).get(30)
        assert cluster.in_sync("t", 1) == {1, 2, 3}
        text = (cluster.data_dir / "node-1" / "server.properties").read_text()
        assert "group.initial.rebalance.delay.ms=0" in text

    def test_it_is_gone_after_the_test():
        assert not any(node.is_running for node in seen[0].nodes)
        assert not seen[0].data_dir.exists()

    def test_a_wrong_option_is_told(odradek_cluster):
        with pytest.raises(Exception, match="Did you mean num.partitions"):
            odradek_cluster(num_partition=2)
"""


def test_the_fixture_makes_clusters_that_end_with_their_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(STORY)
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_the_test_of_the_page_for_python_passes(pytester: pytest.Pytester) -> None:
    page = (environment.CHECKOUT / "docs" / "python.md").read_text()
    (example,) = re.findall(r"```python\n((?:(?!```).)*odradek_cluster.*?)```", page, re.DOTALL)
    pytester.makepyfile(example)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
