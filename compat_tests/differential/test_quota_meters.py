"""Meters of quotas beside Kafka's own classes: the same seeded histories, the same waits.

A small Java program drives `Sensor`, `Rate`, `TokenBucket` and `QuotaUtils` from the jars of the reference.
"""

from __future__ import annotations

import pathlib
import random

import pytest

from compat_tests.reference import run_java
from odradek.coordinator.security.quota_meters import WAIT_MS_MAX, RateMeter, TokenBucket

HISTORIES = 40
EVENTS = 400
START_MS = 1_700_000_000_000
PROGRAM = """
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.common.metrics.stats.*;
import org.apache.kafka.server.quota.QuotaUtils;
import java.util.concurrent.TimeUnit;

public class KafkaMeters {
    // Lines: "new rate|bucket bound samples window_s", "charge value now", "record value now", "bound value".
    public static void main(String[] arguments) {
        Metrics metrics = new Metrics();
        Sensor sensor = null;
        KafkaMetric metric = null;
        int number = 0, samples = 0;
        long windowS = 0;
        boolean isBucket = false;
        StringBuilder out = new StringBuilder();
        java.util.Scanner scanner = new java.util.Scanner(System.in);
        while (scanner.hasNextLine()) {
            String[] words = scanner.nextLine().split(" ");
            if (words[0].equals("new")) {
                isBucket = words[1].equals("bucket");
                samples = Integer.parseInt(words[3]);
                windowS = Long.parseLong(words[4]);
                sensor = metrics.sensor("sensor" + ++number);
                MetricName name = metrics.metricName("metric" + number, "group");
                MetricConfig config = config(words[2], samples, windowS);
                sensor.add(name, isBucket ? new TokenBucket() : new Rate(), config);
                metric = metrics.metric(name);
                continue;
            }
            if (words[0].equals("bound")) {
                metric.config(config(words[1], samples, windowS));
                continue;
            }
            double value = Double.parseDouble(words[1]);
            long now = Long.parseLong(words[2]);
            sensor.record(value, now, false);
            if (words[0].equals("record")) continue;
            long wait = 0;
            try {
                sensor.checkQuotas(now);
            } catch (QuotaViolationException e) {
                wait = isBucket ? Math.round(-e.value() / e.bound() * 1000) : QuotaUtils.throttleTime(e, now);
            }
            out.append(wait).append('\\n');
        }
        System.out.print(out);
    }

    static MetricConfig config(String bound, int samples, long windowS) {
        return new MetricConfig().timeWindow(windowS, TimeUnit.SECONDS).samples(samples)
            .quota(Quota.upperBound(Double.parseDouble(bound)));
    }
}
"""


class History:
    """The lines for Kafka's classes, and the waits of ours."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.waits_ms: list[int] = []

    def add(self, seed: int, *, is_bucket: bool) -> None:
        rng = random.Random(seed)
        samples, window_s = rng.choice(((11, 1), (11, 1), (3, 2), (2, 1)))
        bound = rng.choice((1.0, 2.5, 100.0, 1e6))
        make = TokenBucket if is_bucket else RateMeter
        meter = make(bound, samples=samples, window_ms=window_s * 1_000)
        self.lines.append(f"new {'bucket' if is_bucket else 'rate'} {bound} {samples} {window_s}")
        now_ms = START_MS
        for _ in range(EVENTS):
            now_ms += rng.choice((0, 0, 1, 7, 100, 400, 999, 1_000, 1_001, 3_500, 10_999, 11_000, 12_345))
            if rng.random() < 0.02:
                meter.bound = rng.choice((1.0, 3.0, 250.0))
                self.lines.append(f"bound {meter.bound}")
            value = float(rng.randrange(int(meter.bound * 6) + 2))
            if not is_bucket and rng.random() < 0.2:
                # A fetch that is answered empty: what it would have sent is taken back.
                self.record(meter, value, now_ms)
                self.record(meter, -value, now_ms)
            self.lines.append(f"charge {value} {now_ms}")
            if isinstance(meter, RateMeter):
                self.waits_ms.append(meter.charge(value, now_ms))
            else:
                meter.record(value, now_ms)
                self.waits_ms.append(meter.throttle_ms(now_ms))

    def record(self, meter: RateMeter | TokenBucket, value: float, now_ms: int) -> None:
        self.lines.append(f"record {value} {now_ms}")
        meter.record(value, now_ms)

    def waits_of_kafka(self, folder: pathlib.Path) -> list[int]:
        source = folder / "KafkaMeters.java"
        source.write_text(PROGRAM)
        told = run_java(source, stdin="\n".join(self.lines))
        # Kafka cuts longer ones to 32 bits, whatever is left.
        return [min(int(line), WAIT_MS_MAX) for line in told.split()]


@pytest.mark.parametrize("is_bucket", [False, True], ids=["rates", "buckets"])
def test_clients_wait_as_long_as_kafkas_own_classes_say(is_bucket: bool, tmp_path: pathlib.Path) -> None:
    history = History()
    for seed in range(HISTORIES):
        history.add(seed, is_bucket=is_bucket)
    assert sum(1 for one in history.waits_ms if one) > HISTORIES * EVENTS // 10
    theirs = history.waits_of_kafka(tmp_path)
    assert len(theirs) == len(history.waits_ms)
    # Sums of doubles in another order may round to the other millisecond.
    wrong = [(t, o) for t, o in zip(theirs, history.waits_ms, strict=True) if abs(t - o) > 1]
    assert not wrong
    assert sum(t != o for t, o in zip(theirs, history.waits_ms, strict=True)) <= len(theirs) // 1_000
