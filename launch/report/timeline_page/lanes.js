// Lanes: slices of one row, which never overlap, sorted by time; and what of them a screen of some pixels shows.

/** First position from `low` on whose value is at least `wanted`; `values` ascend. */
function lowerBound(values, wanted, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A row of slices. `members`: their numbers in the document, by time; `start`, `end`, `kind` likewise. */
class Lane {
  constructor(members, startOf, endOf, kindOf) {
    this.members = Int32Array.from(members);
    this.start = Float64Array.from(members, startOf);
    this.end = Float64Array.from(members, endOf);
    this.kind = Uint8Array.from(members, kindOf);
    this.busy = busyBefore(this);
  }
  get length() { return this.members.length; }

  /** The position of the slice at `time`, or the nearest one within `tolerance`; -1 where there is none. */
  at(time, tolerance) {
    const after = lowerBound(this.start, time), before = after - 1;
    const far = [
      [before, before >= 0 ? Math.max(time - this.end[before], 0) : Infinity],
      [after, after < this.length ? this.start[after] - time : Infinity],
    ];
    const [[position, distance]] = far.sort((one, other) => one[1] - other[1]);
    return distance <= tolerance ? position : -1;
  }
}

/** By kind: nanoseconds of it before each position, so that any stretch's share is one subtraction. */
function busyBefore(lane) {
  const busy = new Map();
  for (const kind of new Set(lane.kind)) busy.set(kind, new Float64Array(lane.length + 1));
  for (const [kind, sums] of busy)
    for (let n = 0; n < lane.length; n++)
      sums[n + 1] = sums[n] + (lane.kind[n] === kind ? lane.end[n] - lane.start[n] : 0);
  return busy;
}

/**
 * What a screen shows of a lane: `wide(position, x0, x1)` for each slice of a pixel or more, `column(x, kind, share)` for
 * each pixel that narrower ones fall into, coloured by the kind that most of it belongs to. Takes time that grows with
 * the pixels, not with the slices. `shown(kind)`: whether the legend has it.
 */
function eachVisible(lane, t0, t1, width, shown, wide, column) {
  const scale = width / (t1 - t0), count = lane.length;
  let n = lowerBound(lane.end, t0);
  while (n < count && lane.start[n] < t1) {
    const x0 = (lane.start[n] - t0) * scale, x1 = (lane.end[n] - t0) * scale;
    if (x1 - x0 >= 1) {
      wide(n, x0, x1);
      n++;
      continue;
    }
    const pixel = Math.floor(x0), until = t0 + (pixel + 1) / scale;
    let next = lowerBound(lane.start, until, n + 1, count);
    // The last one may reach far beyond this pixel: it is drawn for itself.
    if (next - 1 > n && (lane.end[next - 1] - lane.start[next - 1]) * scale >= 1) next--;
    let most = -1, largest = 0, total = 0;
    for (const [kind, sums] of lane.busy) {
      const part = shown(kind) ? sums[next] - sums[n] : 0;
      total += part;
      if (part > largest) [most, largest] = [kind, part];
    }
    if (most >= 0) column(pixel, most, Math.min(total * scale, 1));
    n = next;
  }
}

/** Rows for spans that overlap: each goes to the first row that is free by then. Returns rows of `members`. */
function rowsOf(members, startOf, endOf) {
  const rows = [], until = [];
  for (const member of members) {
    let row = until.findIndex(end => end <= startOf(member));
    if (row < 0) {
      row = rows.length;
      rows.push([]);
    }
    rows[row].push(member);
    until[row] = endOf(member);
  }
  return rows;
}
