"""The levels with which a new data directory begins, and what becomes of those that there are."""

import asyncio
import contextlib
import shutil

import pytest

from odradek.config.broker_config import ConfigError, load
from odradek.coordinator.cluster.features import FEATURES, first_levels
from odradek.server.broker import BrokerServer
from odradek.server.metadata.feature_levels import read_levels
from odradek.server.metadata.meta_properties import METADATA_LOG, OLD_STORE
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import api_versions, describe_configs
from tests.kit.old_store import write_store


async def ask(port, request, version):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_frame(request, version, 1, "tests"))
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()
    return read_response(frame, type(request), version)[1]


@contextlib.asynccontextmanager
async def running(directory, *features, release_version=None, **keywords):
    server = BrokerServer(
        load(
            listen="127.0.0.1:0",
            data_dir=directory,
            keywords=keywords,
            first_levels=read_levels(features, release_version),
        )
    )
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


async def told(server):
    request = api_versions.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = await ask(server.port, request, 4)
    return {one.name: one.max_version_level for one in answer.finalized_features}


async def told_min_insync_replicas(server):
    """(value, source) of the broker's setting."""
    resource = describe_configs.DescribeConfigsResource(
        resource_type=4, resource_name=str(server.node_id), configuration_keys=["min.insync.replicas"]
    )
    answer = await ask(server.port, describe_configs.DescribeConfigsRequest(resources=[resource]), 4)
    (config,) = answer.results[0].configs
    return config.value, config.config_source


def without_zeros(levels):
    return {name: level for name, level in levels.items() if level}


def test_a_new_directory_begins_with_the_newest_levels(tmp_path):
    async def story():
        async with running(tmp_path) as server:
            assert await told(server) == without_zeros(first_levels())
            assert await told_min_insync_replicas(server) == ("1", 3)

    asyncio.run(story())


def test_the_setting_that_comes_with_a_level_is_that_of_the_start(tmp_path):
    async def story():
        async with running(tmp_path, min_insync_replicas=2) as server:
            assert await told_min_insync_replicas(server) == ("2", 3)
        async with running(tmp_path, min_insync_replicas=3) as server:
            assert await told_min_insync_replicas(server) == ("2", 3)

    asyncio.run(story())


def test_a_new_directory_begins_with_the_levels_that_are_asked_for(tmp_path):
    async def story():
        wanted = without_zeros({**first_levels("4.0"), "transaction.version": 1})
        async with running(tmp_path, "transaction.version=1", release_version="4.0") as server:
            assert await told(server) == wanted
            assert await told_min_insync_replicas(server) == ("1", 5)
        async with running(tmp_path) as server:
            assert await told(server) == wanted

    asyncio.run(story())


def test_levels_are_for_new_directories_only(tmp_path):
    async def story():
        async with running(tmp_path):
            pass
        for asked in ({"release_version": "4.3"}, {"release_version": "4.0"}):
            with pytest.raises(ConfigError, match=r"is not new.*odradek cluster features"):
                async with running(tmp_path, **asked):
                    pass
        with pytest.raises(ConfigError, match="is not new"):
            async with running(tmp_path, "group.version=1"):
                pass
        async with running(tmp_path) as server:
            assert await told(server) == without_zeros(first_levels())

    asyncio.run(story())


def test_a_start_that_failed_has_not_used_up_a_new_directory(tmp_path):
    async def story():
        directories = f"{tmp_path}/a,{tmp_path}/b"
        with pytest.raises(
            ConfigError, match=r"several data directories need metadata.version 3.7-IV2 or later"
        ):
            async with running(None, release_version="3.6", log_dirs=directories):
                pass
        async with running(None, release_version="3.7", log_dirs=directories) as server:
            assert (await told(server))["metadata.version"] == 19

    asyncio.run(story())


def test_a_directory_is_not_added_below_the_level_that_it_needs(tmp_path):
    async def story():
        async with running(tmp_path / "a", release_version="3.6"):
            pass
        with pytest.raises(ConfigError, match=r"and it is 3.6-IV2"):
            async with running(None, log_dirs=f"{tmp_path}/a,{tmp_path}/b"):
                pass

    asyncio.run(story())


def test_a_directory_from_before_these_features_opens_and_goes_on(tmp_path):
    """It had three features, one of them switched off, and a setting of one broker."""

    async def story():
        async with running(tmp_path, min_insync_replicas=2):
            pass
        before = {"group.version": 1, "transaction.version": 1}
        shutil.rmtree(tmp_path / METADATA_LOG)
        had = [("feature", name, str(level)) for name, level in before.items()]
        setting = ("broker_config", "1/min.insync.replicas", "3")
        write_store(tmp_path / OLD_STORE, [*had, setting, ("cluster", "features_epoch", "4")])
        for _ in range(2):
            async with running(tmp_path, min_insync_replicas=2) as server:
                assert await told(server) == {**before, "metadata.version": 33, "kraft.version": 1}
                assert await told_min_insync_replicas(server) == ("3", 2)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("features", "release_version", "words"),
    [
        (["group.version"], None, "--feature takes NAME=LEVEL"),
        (["group.version=-1"], None, "--feature takes NAME=LEVEL"),
        (["group.version=one"], None, "--feature takes NAME=LEVEL"),
        (["group.version=1", "group.version=0"], None, "--feature names group.version twice"),
        (["group.version=7"], None, "its levels are 0 to 1"),
        (["speed=7"], None, "there is no feature 'speed'"),
        ([], "9.9", "there is no release '9.9'"),
        (["metadata.version=25"], "4.0", "give one of them"),
        (["kraft.version=0"], None, "the voters are in the metadata log"),
    ],
)
def test_levels_that_cannot_be_are_one_sentence(features, release_version, words):
    with pytest.raises(ConfigError, match=words) as refused:
        read_levels(features, release_version)
    assert str(refused.value).endswith(".")


def test_every_level_of_every_feature_can_be_begun_with():
    for name, feature in FEATURES.items():
        for level in range(feature.lowest, feature.highest + 1):
            if (name, level) == ("kraft.version", 0):
                continue
            levels = read_levels([f"{name}={level}"], None)
            assert load(first_levels=levels).first_levels[name] == level
