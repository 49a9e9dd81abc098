"""What the benchmark of many partitions makes of what it measured."""

from benchmarks.partitions import Costs, opening_after_kill


def test_what_each_partition_costs_after_a_kill_is_told_and_limited():
    few = Costs(start_s=[0.1], start_after_kill_s=[0.2])
    most = Costs(start_s=[0.2, 0.2, 0.2], start_after_kill_s=[1.7, 2.2, 1.2])
    one = opening_after_kill({1_000: few, 10_000: most})
    assert (round(one.value), one.unit, one.met) == (150, "us", False)
    most.start_after_kill_s = [0.3, 0.1, 0.3]
    assert opening_after_kill({1_000: few, 10_000: most}).met
