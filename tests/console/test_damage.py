"""Messages that are too large, and batches that cannot be read: a sentence, and bounded memory."""

import http.client
import pathlib
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import crc32c
import pytest

import odradek
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.wire.record_layout import HEADER_SIZE_BYTES
from odradek.wire.records import build_batch
from tests.client.topics import create_topic, produce, produce_batch
from tests.console.browsers import Page, browser_of
from tests.console.conftest import NO_RETENTION, NOW_MS
from tests.console.served import console

MB = 1_000_000
SIZE = 100 * MB
COPIES_MAX = 3.5
"""Times the size that the memory of the console may grow by: the response of the broker, the records of its
batch, and the content of the record, for a moment all three."""
AT_ONCE_MAX = 5.5
"""The same, where a page is made while the response of the last one is being sent."""
ATTRIBUTES_POSITION, CRC_POSITION = 21, 17


def memory_bytes(pid, name):
    """VmRSS, or VmHWM, the most that it has been."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(name))) * 1024


def read(url):
    """The status and the size of a response, which is not kept."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=300)
    connection.request("GET", f"{parts.path}?{parts.query}")
    response, size = connection.getresponse(), 0
    while piece := response.read(1 << 16):
        size += len(piece)
    connection.close()
    return response.status, size


def test_a_message_of_100_mb_stays_within_a_few_copies_and_leaves_nothing_behind(tmp_path):
    options = {
        "message.max.bytes": str(SIZE + 4096),
        "socket.request.max.bytes": str(2 * SIZE),
        **NO_RETENTION,
    }
    with (
        odradek.Broker(options=options, data_dir=tmp_path) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
        console("-b", broker.bootstrap_servers, "--listen", "0") as running,
    ):
        topic = create_topic(cluster)
        produce_batch(cluster, topic, 0, build_batch([(0, NOW_MS, b"k", b"x" * SIZE, ())]))
        produce(cluster, topic, 0, [b"small"])
        pid, base = running.process.pid, f"{running.url}/topics/{topic}"
        read(f"{running.url}/topics")
        before = memory_bytes(pid, "VmRSS")
        for path, most in (
            ("", 60_000),
            ("/messages?value=xx", 60_000),
            ("/messages/0/0", 600_000),
            ("/messages/0/0/value.txt", 2 * MB),
        ):
            status, size = read(base + path)
            assert (status, size < most) == (200, True), (path, size)
        assert read(f"{base}/messages/0/0/value.bin") == (200, SIZE)
        assert read(f"{running.url}/produce?topic={topic}&from=0-0")[1] < 60_000
        assert memory_bytes(pid, "VmHWM") - before < COPIES_MAX * SIZE
        read(f"{running.url}/topics")
        assert memory_bytes(pid, "VmRSS") - before < SIZE // 2
        assert_so_many_at_once_take_no_more(pid, f"{base}/messages/0/0", before)


def assert_so_many_at_once_take_no_more(pid, base, before):
    """Some wait, others are told to come again: all of them at once would take twenty times the size."""
    urls = [f"{base}/{part}" for part in ("value.bin", "value.txt", "message.jsonl")] * 2
    with ThreadPoolExecutor(len(urls)) as pool:
        found = [status for status, _ in pool.map(read, urls)]
    assert set(found) <= {200, 503}
    assert 200 in found
    assert memory_bytes(pid, "VmHWM") - before < AT_ONCE_MAX * SIZE


def damaged(path, change):
    """The second batch of a segment with another content."""
    content = bytearray(path.read_bytes())
    start = 12 + struct.unpack_from(">i", content, 8)[0]
    end = start + 12 + struct.unpack_from(">i", content, start + 8)[0]
    batch = content[start:end]
    change(batch)
    content[start:end] = batch
    path.write_bytes(content)


def unknown_codec(batch):
    batch[ATTRIBUTES_POSITION + 1] |= 7
    struct.pack_into(">I", batch, CRC_POSITION, crc32c.crc32c(bytes(batch[ATTRIBUTES_POSITION:])))


def flipped(batch):
    batch[HEADER_SIZE_BYTES + 3] ^= 0xFF


@pytest.mark.parametrize(
    ("change", "told"), [(flipped, "checksum|CRC|crc"), (unknown_codec, "compression|codec")]
)
def test_a_batch_that_cannot_be_read_is_a_sentence_and_the_rest_of_the_page_works(tmp_path, change, told):
    with (
        odradek.Broker(data_dir=tmp_path, options=NO_RETENTION) as broker,
        Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
    ):
        topic = create_topic(cluster)
        for number in range(3):
            produce(cluster, topic, 0, [b"value %d" % number] * 2)
    (path,) = tmp_path.glob(f"{topic}-0/*.log")
    damaged(path, change)
    with (
        odradek.Broker(data_dir=tmp_path, options=NO_RETENTION) as broker,
        browser_of(broker.bootstrap_servers) as browser,
    ):
        for url in (
            f"/topics/{topic}",
            f"/topics/{topic}/messages/0/2",
            f"/topics/{topic}/messages?order=oldest",
        ):
            page = browser.page(url)
            assert "the batch at offset 2 cannot be read" in page.text, url
            assert re.search(told, page.text), page.text
            assert page.all("a", href="/groups")
        assert page.all("input", name="from"), "the form chooses what is behind the batch"
        assert "value 2" in browser.page(f"/topics/{topic}/messages?from=4").text
        assert "value 0" in browser.page(f"/topics/{topic}/messages?until=2").text
        response = browser.get(f"/topics/{topic}/export")
        assert response.status_code == 502 or "value 0" in response.text
        assert topic in Page(browser.get("/topics").text).text
