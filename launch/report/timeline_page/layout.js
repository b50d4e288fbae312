// Where each lane stands: devices one below the other, each with its lanes; a folded device has one lane.

const LEAST_HEIGHT = 18, MOST_HEIGHT = 34, LANE_GAP = 2, DEVICE_GAP = 12;

/** A device's rows without their places: {lane, flight, label}; lanes that have something between the `bounds`. */
function rowsOfDevice(lanes, folded, bounds) {
  const used = lane => lane.end[lowerBound(lane.start, bounds.t1) - 1] > bounds.t0;
  if (folded) return [{ lane: lanes.leaves, flight: false, label: "" }];
  const compute = lanes.depths.filter((lane, depth) => depth === 0 || used(lane));
  return [
    ...compute.map((lane, n) => ({ lane, flight: false, label: n ? "" : "compute" })),
    ...lanes.flights.filter(used).map((lane, n) => ({ lane, flight: true, label: n ? "" : "in flight" })),
  ];
}

/**
 * Rows from top to bottom: {device, lane, flight, label, first, y, height}, and the height of all, which fills `room`
 * pixels where rows of a fit size can. `place`: by a flight's number the row that it is drawn in, else -1.
 */
function layout(deviceLanes, folded, flights, bounds, room) {
  const devices = deviceLanes.map((lanes, device) => rowsOfDevice(lanes, folded.has(device), bounds));
  const count = devices.reduce((sum, own) => sum + own.length, 0);
  const fitting = Math.floor((room - (devices.length + 0.5) * DEVICE_GAP) / Math.max(count, 1)) - LANE_GAP;
  const height = Math.min(Math.max(fitting, LEAST_HEIGHT), MOST_HEIGHT);
  const rows = [], place = new Int32Array(flights).fill(-1);
  let y = DEVICE_GAP / 2;
  devices.forEach((own, device) => {
    own.forEach((row, n) => {
      if (row.flight) for (const number of row.lane.members) place[number] = rows.length;
      rows.push({ ...row, device, first: n === 0, y, height });
      y += height + LANE_GAP;
    });
    y += DEVICE_GAP;
  });
  return { rows, place, height: y };
}

/** The row at height `y`, undefined where there is none. */
function rowAt(rows, y) {
  return rows.find(row => row.y <= y && y < row.y + row.height + LANE_GAP);
}

/** A device's first row, that its label and its part of the critical path belong to, and the last of its compute lanes. */
function deviceRows(rows, device) {
  const own = rows.filter(row => row.device === device), compute = own.filter(row => !row.flight);
  return { first: own[0], lastCompute: compute[compute.length - 1] };
}
