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


FAILING = """
    import pytest
    from kafka import KafkaProducer

    def send(cluster):
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer:
            return producer.send("orders", b"x", partition=0).get(60).offset

    @pytest.mark.odradek_faults("Produce", client_id="shop", error="NOT_ENOUGH_REPLICAS", times=1)
    @pytest.mark.odradek_restore
    def test_of_a_cluster(odradek_cluster):
        cluster = odradek_cluster(nodes=3)
        assert [len(node.faults.all()) for node in cluster.nodes] == [1, 1, 1]
        assert send(cluster) == 0
        leader = cluster.leader_of("orders")
        assert [node.faults.all()[0]["fired"] for node in cluster.nodes] == [
            int(node is leader) for node in cluster.nodes
        ]
        leader.faults.add(leader_moved=True, topic="orders", partition=0)
        others = [node for node in cluster.nodes if node is not leader]
        others[0].pause()
        others[1].restart()
        print("led by", leader.node_id, "paused", others[0].node_id, "restarted", others[1].node_id)
        assert not "this fails"
"""


def test_the_report_of_a_failed_test_has_a_part_for_each_node(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    found = re.search(r"led by (\d) paused (\d) restarted (\d)", text)
    assert found is not None
    leader, paused, restarted = found.groups()
    (section,) = text.split("- odradek -")[1:]
    parts = {part[0]: part for part in section.split("<Node ")[1:]}
    assert parts.keys() == {"1", "2", "3"}
    assert (
        "api='Produce', client_id='shop', error='NOT_ENOUGH_REPLICAS', times=1: has fired once"
        in parts[leader]
    )
    assert "topic='orders', partition=0, leader_moved=True: has fired once" in parts[leader]
    assert "last 20 requests:" in parts[leader]
    assert "  orders: 1 partition, 1 offset" in parts[leader]
    for node in (leader, restarted):
        assert "  orders: 1 partition, " in parts[node]
        assert "log since the test began:" in parts[node]
    assert "it is paused" in parts[paused]
    assert "faults:" not in parts[restarted], "a restart ends them"
    assert "last 20 requests:" in parts[restarted]
