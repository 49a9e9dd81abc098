"""The nodes of a view, and the steps from one view to another, carried out in a ZooKeeper of dictionaries."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
from odradek.coordinator.zookeeper import nodes
from odradek.coordinator.zookeeper.projection import Projection, setting_nodes, topic_nodes, without_passwords

EPOCH = 3


class Tree:
    """Takes and refuses what ZooKeeper does."""

    def __init__(self):
        self.nodes = dict.fromkeys(["", "/config", "/brokers", *nodes.ROOTS])

    def carry_out(self, step):
        path, content, is_new = step
        above = path.rpartition("/")[0]
        if content is None:
            assert not [one for one in self.nodes if one.startswith(f"{path}/")], f"{path} has nodes below it"
            del self.nodes[path]
        else:
            assert above in self.nodes, f"there is no {above}"
            assert is_new == (path not in self.nodes), path
            self.nodes[path] = content

    @property
    def written(self):
        return {path: content for path, content in self.nodes.items() if content is not None}


def wanted(view):
    """The nodes that there have to be."""
    topics = [node for topic in view.topics.values() for node in topic_nodes(topic, EPOCH)]
    return dict(topics) | dict(setting_nodes(view))


REPLICAS = st.sampled_from([(1,), (1, 2), (2, 1, 3)])
PARTITIONS = st.lists(REPLICAS, min_size=1, max_size=3).map(
    lambda partitions: tuple(
        PartitionView(index, replicas[0], 0, replicas, replicas) for index, replicas in enumerate(partitions)
    )
)
CONFIGS = st.dictionaries(st.sampled_from(["retention.ms", "cleanup.policy"]), st.sampled_from(["1", "2"]))
TOPICS = st.dictionaries(
    st.sampled_from(["a", "b", "a.b"]),
    st.tuples(st.sampled_from([b"1" * 16, b"2" * 16]), PARTITIONS, CONFIGS),
).map(
    lambda topics: {
        name: TopicView(name, topic_id, partitions, configs=configs)
        for name, (topic_id, partitions, configs) in topics.items()
    }
)
USERS, CLIENTS = (st.none() | st.sampled_from(["x", "y z"]) for _ in range(2))
ENTITIES = (
    USERS.map(lambda user: (("user", user),))
    | CLIENTS.map(lambda client: (("client-id", client),))
    | st.tuples(CLIENTS, USERS).map(lambda pair: (("client-id", pair[0]), ("user", pair[1])))
)
QUOTAS = st.dictionaries(
    ENTITIES, st.sampled_from([{"request_percentage": 2.0}, {"producer_byte_rate": 5.0}])
)
BROKERS = st.dictionaries(
    st.sampled_from([None, 1, 2]), st.sampled_from([{"log.cleaner.backoff.ms": "1"}, {}])
)
VIEWS = st.builds(
    lambda topics, brokers, quotas: ClusterView(topics=topics, broker_configs=brokers, client_quotas=quotas),
    TOPICS,
    BROKERS,
    QUOTAS,
)


@given(st.lists(VIEWS, min_size=1, max_size=4))
def test_from_each_view_the_steps_lead_to_the_next(views):
    tree, projection = Tree(), Projection({}, EPOCH)
    for view in views:
        for step in projection.steps(view):
            tree.carry_out(step)
        assert tree.written == wanted(view)
        assert projection.topics() == {name: tree.nodes[nodes.topic_path(name)] for name in view.topics}
        assert list(projection.steps(view)) == [], "the same view again asks for nothing"


@given(VIEWS, VIEWS)
def test_who_becomes_the_controller_goes_on_from_what_is_there(before, after):
    tree = Tree()
    for step in Projection({}, EPOCH - 1).steps(before):
        tree.carry_out(step)
    for step in Projection(tree.written, EPOCH).steps(after):
        tree.carry_out(step)
    assert tree.written == wanted(after)


@given(VIEWS, VIEWS, st.data())
def test_it_can_end_after_each_step(before, after, data):
    """As when another one writes: what is there is read anew then."""
    tree = Tree()
    for step in Projection({}, EPOCH).steps(before):
        tree.carry_out(step)
    steps = list(Projection(tree.written, EPOCH).steps(after))
    for step in steps[: data.draw(st.integers(0, len(steps)))]:
        tree.carry_out(step)
    for step in Projection(tree.written, EPOCH).steps(after):
        tree.carry_out(step)
    assert tree.written == wanted(after)


PARTITION = PartitionView(0, 1, 0, (1,), (1,))
VIEW = ClusterView(topics={"t": TopicView("t", b"t" * 16, (PARTITION,), configs={"retention.ms": "1"})})


@pytest.fixture
def known():
    """A projection, and ZooKeeper, that have the view."""
    tree, projection = Tree(), Projection({}, EPOCH)
    for step in projection.steps(VIEW):
        tree.carry_out(step)
    return projection, tree


def test_the_settings_of_a_topic_come_first(known):
    _, tree = known
    paths = list(tree.written)
    assert paths.index("/config/topics/t") < paths.index("/brokers/topics/t"), "an old tool reads them then"


def test_one_partition_that_has_changed_is_one_step(known):
    projection, _ = known
    changed = replace(VIEW.topics["t"], partitions=(PARTITION._replace(isr=()),))
    (step,) = projection.steps(replace(VIEW, topics={"t": changed}))
    assert step.path == "/brokers/topics/t/partitions/0/state"
    assert not step.is_new


def test_a_topic_that_was_made_anew_is_written_anew(known):
    projection, _ = known
    other = replace(VIEW.topics["t"], topic_id=b"o" * 16)
    steps = list(projection.steps(replace(VIEW, topics={"t": other})))
    assert [step.content is None for step in steps] == [True] * 5 + [False] * 5


def test_what_somebody_else_writes_is_written_over_or_removed(known):
    projection, tree = known
    made = {"/brokers/topics/t": b"theirs", "/config/topics/t": b"{}", "/brokers/topics/new": b"{}"}
    for path, content in made.items():
        tree.nodes[path] = content
        projection.forget(path, content)
    for step in projection.steps(VIEW):
        tree.carry_out(step)
    assert tree.written == wanted(VIEW)


def test_passwords_are_not_written():
    configs = {
        "log.cleaner.backoff.ms": "1",
        "ssl.keystore.password": "secret",
        "listener.name.in.ssl.key.password": "secret",
        "nobody.knows": "secret",
    }
    assert without_passwords(configs) == {"log.cleaner.backoff.ms": "1"}
    assert b"secret" not in dict(setting_nodes(ClusterView(broker_configs={1: configs})))["/config/brokers/1"]
    assert dict(setting_nodes(ClusterView(broker_configs={None: {"ssl.keystore.password": "secret"}}))) == {}


def test_a_users_quotas_stay_beside_those_of_its_clients():
    quotas = {
        (("user", "u"),): {"producer_byte_rate": 5.0},
        (("client-id", "c"), ("user", "u")): {"request_percentage": 12.0},
    }
    found = dict(setting_nodes(ClusterView(client_quotas=quotas)))
    assert nodes.read_entity_config(found["/config/users/u"]) == {"producer_byte_rate": "5"}
    assert nodes.read_entity_config(found["/config/users/u/clients/c"]) == {"request_percentage": "12.0"}
