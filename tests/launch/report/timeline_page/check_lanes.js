// What a screen shows of a lane: against going through all slices, for many slices and few pixels.
const { equal, deepEqual, ok } = assert.strict;

equal(lowerBound([1, 3, 3, 7], 3), 1);
equal(lowerBound([1, 3, 3, 7], 8), 4);

// A generator of numbers that is the same in each run.
let seed = 12345;
const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;

function randomLane(count) {
  const start = [], end = [], kind = [];
  let at = 0;
  for (let n = 0; n < count; n++) {
    at += random() < 0.5 ? 0 : random() * 30;
    start.push(at);
    at += random() ** 6 * (random() < 0.01 ? 5000 : 40);
    end.push(at);
    kind.push(Math.floor(random() * 3));
  }
  return new Lane([...start.keys()], n => start[n], n => end[n], n => kind[n]);
}

const lane = randomLane(20_000), last = lane.end[lane.length - 1];
for (const [t0, t1, hidden] of [[0, last, -1], [0, last, 1], [last / 3, last / 2, -1], [1000, 4000, 2], [-500, 500, -1]]) {
  const width = 700, scale = width / (t1 - t0), wide = [], columns = new Map();
  let calls = 0;
  eachVisible(lane, t0, t1, width, kind => kind !== hidden,
    position => { wide.push(position); calls++; },
    (pixel, kind, share) => { columns.set(pixel, [kind, share]); calls++; });
  const expectedWide = [], busy = new Map();
  for (let n = 0; n < lane.length; n++) {
    if (lane.end[n] < t0 || lane.start[n] >= t1) continue;
    if ((lane.end[n] - lane.start[n]) * scale >= 1) {
      expectedWide.push(n);
      continue;
    }
    const pixel = Math.floor((lane.start[n] - t0) * scale);
    if (!busy.has(pixel)) busy.set(pixel, [0, 0, 0]);
    if (lane.kind[n] !== hidden) busy.get(pixel)[lane.kind[n]] += lane.end[n] - lane.start[n];
  }
  deepEqual(wide, expectedWide);
  let compared = 0;
  for (const [pixel, parts] of busy) {
    // A wide slice may begin in the middle of a pixel: such a pixel is painted in two goes, the second one in view.
    if (expectedWide.some(n => Math.floor((lane.start[n] - t0) * scale) === pixel)) continue;
    const most = Math.max(...parts), [kind, share] = columns.get(pixel) || [parts.indexOf(most), 0];
    ok(parts[kind] > most - 1e-6, `pixel ${pixel}`);
    ok(Math.abs(share - Math.min(parts.reduce((a, b) => a + b) * scale, 1)) < 1e-6);
    compared++;
  }
  ok(compared + wide.length > 20);
  ok(calls <= 2 * width + expectedWide.length);
}

// The slice at a time, and near one.
const few = new Lane([7, 8, 9], n => 10 * n, n => 10 * n + 4, () => 0);
equal(few.at(72, 0), 0);
equal(few.at(77, 0), -1);
equal(few.at(77, 3), 0);
equal(few.at(78, 3), 1);
equal(few.at(60, 5), -1);
equal(few.at(80, 0), 1);

deepEqual(rowsOf([0, 1, 2, 3], n => [0, 1, 5, 6][n], n => [5, 4, 7, 8][n]), [[0, 2], [1, 3]]);
