// The page's data read again: lanes, meetings, arrows, search, rows.
const { equal, deepEqual, ok } = assert.strict;

const doc = decode(raw), { slices, flights, instructions } = doc;
const nameOf = n => instructions.name[slices.instruction[n]];
const find = (device, step, name, leaf = 1) => [...Array(slices.length).keys()].filter(n =>
  slices.device[n] === device && slices.step[n] === step && nameOf(n) === name && slices.leaf[n] === leaf);

equal(slices.length, 40);
const many = Array.from({ length: 300_000 }, (_, n) => ({ ...raw.steps[0], end: n }));
equal(decode({ ...raw, steps: many }).whole.t1, 299_999);
const [dot] = find(1, 1, "dot.1");
deepEqual([slices.start[dot], slices.end[dot], slices.depth[dot], slices.reference[dot]], [103_000, 113_000, 0, 9000]);
equal(find(0, 0, "loop_add_fusion").length, 2);
equal(find(0, 0, "while.2", 0).length, 1);
equal(find(0, 0, "while.2", 1).length, 0);
deepEqual(durationsOf(doc, slices.instruction[dot], 1), [10_000, 10_000]);
equal(durationsOf(doc, slices.instruction[dot]).length, 4);

// Lanes hold each slice once, in order, and nothing in a lane overlaps.
for (const device of [0, 1]) {
  const { depths, leaves, flights: rows } = lanesOf(doc, device);
  equal(depths.length, 3);
  equal(depths.reduce((sum, lane) => sum + lane.length, 0), 20);
  equal(rows.reduce((sum, lane) => sum + lane.length, 0), 4);
  for (const lane of [...depths, leaves, ...rows])
    for (let n = 1; n < lane.length; n++) ok(lane.start[n] >= lane.end[n - 1]);
}

// A meeting is one execution on all members; a permute's bytes go from source to target alone.
const flight = (name, device, step) => flights.findIndex(one =>
  instructions.name[one.instruction] === name && one.device === device && one.step === step);
const [gather, other, permute] = [flight("ag", 0, 0), flight("ag", 1, 0), flight("cp", 0, 1)];
deepEqual(meetingOf(doc, gather).sort(), [gather, other].sort());
deepEqual(flowsOf(doc, gather).sort(), [[gather, other], [other, gather]].sort());
deepEqual(flowsOf(doc, permute), [[permute, flight("cp", 1, 1)]]);
equal(flights[gather].arrived, 2000);
deepEqual([flights[other].issued, flights[other].landed, flights[other].waitEnd], [2000, 21_000, 22_000]);
deepEqual(flights[gather].parts, [["late peer", 6000], ["dependency", 3000]]);
const waiting = [...Array(slices.length).keys()].find(n => nameOf(n) === "ag" && slices.start[n] === 11_000);
equal(awaitedIn(doc, waiting), gather);

// Search: all words, in any case, in name, op_name and source.
const named = found => [...found].map(n => instructions.name[n]).sort();
deepEqual(named(matching(instructions, "ADD fusion")), ["loop_add_fusion"]);
deepEqual(named(matching(instructions, "step.py:7")), ["dot.1"]);
deepEqual(named(matching(instructions, "onerror")), ["dot.1"]);
deepEqual(named(matching(instructions, "  ")), []);
const hits = hitsOf(doc, matching(instructions, "loop_add"));
equal(hits.length, 8);
ok(hits.every((hit, n) => n === 0 || hit.start >= hits[n - 1].start));
equal(following(hits, 7, 1), 0);
equal(following(hits, 0, -1), 7);
equal(following([], -1, 1), -1);

// Rows: folded devices have one; lanes with nothing in the bounds have none.
const deviceLanes = [0, 1].map(device => lanesOf(doc, device));
const { rows, place, height } = layout(deviceLanes, new Set([1]), flights.length, doc.whole, 0);
deepEqual(rows.map(row => row.device), [0, 0, 0, 0, 1]);
ok(rows.every((row, n) => n === 0 || row.y >= rows[n - 1].y + rows[n - 1].height));
const roomy = layout(deviceLanes, new Set([1]), flights.length, doc.whole, 150);
deepEqual([rows[0].height, roomy.rows[0].height, roomy.height <= 150], [18, 22, true]);
ok(height >= rows[4].y + rows[4].height);
equal(rows[place[gather]].flight, true);
equal(place[other], -1);
equal(rowAt(rows, rows[2].y + 1), rows[2]);
equal(rowAt(rows, height + 100), undefined);
const positions = positionsOf(doc, rows, matching(instructions, "loop_add")).get(rows[2].lane);
equal(positions.length, 4);
equal(layout(deviceLanes, new Set(), flights.length, { t0: 1e9, t1: 2e9 }, 0).rows.length, 2);
