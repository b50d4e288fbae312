// The page's data (data.py writes it) as arrays to search and draw from. Times are nanoseconds from the first event.

/** Fields of a flight, one execution of a collective on one device, in the order in which data.py writes them. */
const FLIGHT_FIELDS = [
  "instruction", "device", "step", "execution", "members", "last", "issued", "issueEnd", "arrived", "landed",
  "waitBegin", "waitEnd", "hidden", "slowed", "parts", "why",
];
const SINCE_ISSUED = ["issueEnd", "arrived", "landed", "waitBegin", "waitEnd"];

function decode(raw) {
  const said = column => raw.instructions[column].map(n => raw.strings[n]);
  const instructions = {
    ...raw.instructions,
    name: said("name"), opcode: said("opcode"), opName: said("opName"), source: said("source"), text: said("text"),
  };
  const count = instructions.name.length, slices = decodeSlices(raw);
  const flights = raw.flights.map(values => decodeFlight(raw, values));
  return {
    ...raw, instructions, slices, flights,
    whole: { t0: 0, t1: Math.max(1, greatest(raw.steps.map(step => step.end))) },
    slicesOf: groupedBy(count, slices.instruction),
    flightsOf: groupedBy(count, flights.map(one => one.instruction)),
  };
}

function decodeFlight(raw, values) {
  const flight = Object.fromEntries(FLIGHT_FIELDS.map((field, n) => [field, values[n]]));
  for (const field of SINCE_ISSUED) flight[field] += flight.issued;
  flight.members = raw.groups[flight.members];
  flight.parts = flight.parts.map(([reason, ns]) => [raw.strings[reason], ns]);
  flight.why = raw.strings[flight.why];
  return flight;
}

/** Slices of all runs: a run is a sequence of instructions, outer ones before what is in them, with its own times. */
function decodeSlices(raw) {
  const count = raw.runs.reduce((sum, run) => sum + run.took.length, 0);
  const slices = {
    device: new Uint16Array(count), step: new Uint16Array(count), depth: new Uint8Array(count),
    instruction: new Int32Array(count), start: new Float64Array(count), end: new Float64Array(count),
    reference: new Float64Array(count).fill(NaN), leaf: new Uint8Array(count), length: count,
  };
  let n = 0;
  for (const run of raw.runs) {
    const { instruction, depth } = raw.sequences[run.sequence], alone = raw.references[run.references];
    let at = run.start;
    for (let k = 0; k < run.took.length; k++, n++) {
      at += run.at[k];
      slices.device[n] = run.device;
      slices.step[n] = run.step;
      slices.depth[n] = depth[k];
      slices.instruction[n] = instruction[k];
      slices.start[n] = at;
      slices.end[n] = at + run.took[k];
      if (alone[k] !== null) slices.reference[n] = alone[k];
      slices.leaf[n] = k + 1 === depth.length || depth[k + 1] <= depth[k] ? 1 : 0;
    }
  }
  return slices;
}

/** `keys[n]` in 0..count: `of(key)` is the numbers that have it, ascending. */
function groupedBy(count, keys) {
  const first = new Int32Array(count + 1);
  for (let n = 0; n < keys.length; n++) first[keys[n] + 1]++;
  for (let key = 0; key < count; key++) first[key + 1] += first[key];
  const next = first.slice(), numbers = new Int32Array(keys.length);
  for (let n = 0; n < keys.length; n++) numbers[next[keys[n]]++] = n;
  return { of: key => numbers.subarray(first[key], first[key + 1]) };
}

/** The flights of all members that met in flight `number`, by device. */
function meetingOf(document, number) {
  const one = document.flights[number];
  return [...document.flightsOf.of(one.instruction)].filter(n => {
    const other = document.flights[n];
    return other.step === one.step && other.execution === one.execution && one.members.includes(other.device);
  });
}

/** Arrows from where a member of flight `number`'s meeting issued it to where another has its bytes, as [from, to]. */
function flowsOf(document, number) {
  const met = meetingOf(document, number);
  const site = document.sites[document.instructions.site[document.flights[number].instruction]];
  const sends = (from, to) => !site || !site.pairs.length || site.pairs.some(([s, t]) => s === from && t === to);
  const device = n => document.flights[n].device;
  return met.flatMap(from => met.filter(to => to !== from && sends(device(from), device(to))).map(to => [from, to]));
}

/** Durations of an instruction's slices, of one device where `device` is given. */
function durationsOf(document, instruction, device = null) {
  const { slices } = document;
  const wanted = n => device === null || slices.device[n] === device;
  return [...document.slicesOf.of(instruction)].filter(wanted).map(n => slices.end[n] - slices.start[n]);
}

function sliceLane(document, members) {
  const { slices, instructions } = document;
  members.sort((one, other) => slices.start[one] - slices.start[other]);
  const kindOf = n => instructions.kind[slices.instruction[n]];
  return new Lane(members, n => slices.start[n], n => slices.end[n], kindOf);
}

/** A device's lanes: of each depth of what occupies the device, of the innermost of these, rows of collectives in flight. */
function lanesOf(document, device) {
  const { slices, flights, instructions } = document;
  const byDepth = [], leaves = [];
  for (let n = 0; n < slices.length; n++) {
    if (slices.device[n] !== device) continue;
    (byDepth[slices.depth[n]] ||= []).push(n);
    if (slices.leaf[n]) leaves.push(n);
  }
  const own = flights.map((_, n) => n).filter(n => flights[n].device === device);
  own.sort((one, other) => flights[one].issued - flights[other].issued);
  const starts = n => flights[n].issued, ends = n => endOf(flights[n]);
  const kinds = n => instructions.kind[flights[n].instruction];
  return {
    depths: byDepth.filter(Boolean).map(members => sliceLane(document, members)),
    leaves: sliceLane(document, leaves),
    flights: rowsOf(own, starts, ends).map(members => new Lane(members, starts, ends, kinds)),
  };
}

/** When a flight is over: its bytes are there and nothing waits for it. */
function endOf(flight) {
  return Math.max(flight.waitEnd, flight.landed);
}

/** The flight whose waiting on its device overlaps a slice most, -1 where there is none. */
function awaitedIn(document, number) {
  const { slices, flights } = document;
  let most = -1, longest = 0;
  flights.forEach((flight, n) => {
    if (flight.device !== slices.device[number]) return;
    const both = Math.min(flight.waitEnd, slices.end[number]) - Math.max(flight.waitBegin, slices.start[number]);
    if (both > longest) [most, longest] = [n, both];
  });
  return most;
}
