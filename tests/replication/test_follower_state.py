"""Notes that a leader takes of a follower, beside the same in plain Python."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.replication._led import FollowerState
from tests.oracles import follower_state

OFFSETS = st.integers(0, 5)
FIELDS = (
    "log_end_offset",
    "log_start_offset",
    "broker_epoch",
    "fetched_ms",
    "leader_end_offset",
    "caught_up_ms",
)


def fields(state):
    return [getattr(state, name) for name in FIELDS]


@given(
    caught_up_ms=st.none() | st.integers(0, 10),
    fetches=st.lists(st.tuples(OFFSETS, OFFSETS, st.integers(-1, 3), OFFSETS, st.integers(0, 20))),
    lag_ms=st.integers(0, 20),
)
def test_fetches_are_noted_as_in_plain_python(caught_up_ms, fetches, lag_ms):
    first = () if caught_up_ms is None else (caught_up_ms,)
    compiled, plain = FollowerState(*first), follower_state.FollowerState(*first)
    assert fields(compiled) == fields(plain)
    for fetch in fetches:
        compiled.fetched(*fetch)
        plain.fetched(*fetch)
        assert fields(compiled) == fields(plain)
        for end in range(6):
            now_ms = fetch[-1] + lag_ms // 2
            assert compiled.is_caught_up(end, now_ms, lag_ms) == plain.is_caught_up(end, now_ms, lag_ms)
