// Where each lane stands: ranks one below the other, each with its lanes; a collapsed rank has one lane.

const LANE_HEIGHT = 18, FLIGHT_HEIGHT = 18, LANE_GAP = 2, RANK_GAP = 12;

/**
 * Rows from top to bottom: {rank, lane, flight, first, label, y, height}, and the height of all. `rankLanes[r]` as from
 * lanesOf; of these, lanes with something between the `bounds`. `place`: by a flight's number the row that it is drawn in.
 */
function layout(rankLanes, collapsed, flights, bounds) {
  const rows = [], place = new Int32Array(flights).fill(-1);
  let y = RANK_GAP / 2;
  const put = (rank, lane, flight, label, height) => {
    const first = !rows.length || rows[rows.length - 1].rank !== rank;
    if (flight) for (const number of lane.members) place[number] = rows.length;
    rows.push({ rank, lane, flight, first, label, y, height });
    y += height + LANE_GAP;
  };
  const used = lane => lane.end[lowerBound(lane.start, bounds.t1) - 1] > bounds.t0;
  rankLanes.forEach((lanes, rank) => {
    if (collapsed.has(rank)) {
      put(rank, lanes.leaves, false, "", LANE_HEIGHT);
    } else {
      lanes.depths.forEach((lane, depth) => {
        if (depth === 0 || used(lane)) put(rank, lane, false, depth ? "" : "compute", LANE_HEIGHT);
      });
      lanes.flights.filter(used).forEach((lane, row) =>
        put(rank, lane, true, row ? "" : "in flight", FLIGHT_HEIGHT));
    }
    y += RANK_GAP;
  });
  return { rows, place, height: y };
}

/** The row at height `y`, undefined where there is none. */
function rowAt(rows, y) {
  return rows.find(row => row.y <= y && y < row.y + row.height + LANE_GAP);
}

/** A rank's first row, that its label and its part of the critical path belong to, and the last of its compute lanes. */
function rankRows(rows, rank) {
  const own = rows.filter(row => row.rank === rank), compute = own.filter(row => !row.flight);
  return { first: own[0], lastCompute: compute[compute.length - 1] };
}
