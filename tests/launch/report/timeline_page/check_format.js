// Times, bytes and ticks.
const { equal, deepEqual, ok } = assert.strict;

equal(formatTime(0), "0");
equal(formatTime(999), "999 ns");
equal(formatTime(999.6), "1.00 us");
equal(formatTime(12_340), "12.3 us");
equal(formatTime(-1_500_000), "-1.50 ms");
equal(formatTime(2.5e9), "2.50 s");
equal(formatTime(null), "-");
equal(formatBytes(12), "12 B");
equal(formatBytes(4096), "4.1 kB");
equal(formatBytes(999_700_000), "1.0 GB");
equal(formatShare(1, 3), "33.3 %");
equal(formatShare(1, 0), "-");
equal(formatFactor(1.25), "now 25 % longer");
equal(median([3, 1, 2]), 2);
equal(median([4, 1, 2, 3]), 2.5);
equal(median([]), null);
deepEqual([0.7, 1, 1.1, 3, 9].map(niceStep), [1, 1, 2, 5, 10]);

deepEqual(ticks(100, 2600, 100, 500, 100).map(([, text]) => text), ["0", "0.5 us", "1.0 us", "1.5 us", "2.0 us", "2.5 us"]);
// At any zoom: neighbours differ in what they say, and they are neither crowded nor rare.
for (const span of [20, 137, 5_000, 123_456, 9.9e6, 3.3e9]) {
  for (const start of [0, 17, 1e6 + 3, 5e9]) {
    const found = ticks(start, start + span, 0, 1000, 100), texts = found.map(([, text]) => text);
    equal(new Set(texts).size, texts.length, `${start} ${span} ${texts}`);
    ok(found.length <= 11 && (found.length >= 3), `${start} ${span} ${texts}`);
    ok(found.every(([time]) => time >= start && time <= start + span));
  }
}
