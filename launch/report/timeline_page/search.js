// What a search text finds: instructions by name, op_name and source; of these, all slices and flights.

/** Numbers of the instructions in which all of the words occur, in any case of letters. */
function matching(instructions, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Set();
  if (!words.length) return found;
  instructions.name.forEach((name, n) => {
    const said = `${name} ${instructions.opName[n]} ${instructions.source[n]}`.toLowerCase();
    if (words.every(word => said.includes(word))) found.add(n);
  });
  return found;
}

/** Everything of the instructions in `wanted` by its beginning: {flight, number, start}. */
function hitsOf(document, wanted) {
  const hits = [];
  for (const instruction of wanted) {
    for (const number of document.slicesOf.of(instruction))
      hits.push({ flight: false, number, start: document.slices.start[number] });
    for (const number of document.flightsOf.of(instruction))
      hits.push({ flight: true, number, start: document.flights[number].issued });
  }
  return hits.sort((one, other) => one.start - other.start);
}

/** The position of the hit after (or, with `by` -1, before) that at `position`, around the ends. */
function following(hits, position, by) {
  return hits.length ? (position + by + hits.length) % hits.length : -1;
}

/** By lane: positions of what belongs to the instructions in `wanted`. */
function positionsOf(document, rows, wanted) {
  const found = new Map();
  for (const { lane, flight } of wanted.size ? rows : []) {
    const instruction = flight ? n => document.flights[n].instruction : n => document.slices.instruction[n];
    const positions = [];
    lane.members.forEach((number, position) => {
      if (wanted.has(instruction(number))) positions.push(position);
    });
    found.set(lane, Int32Array.from(positions));
  }
  return found;
}
