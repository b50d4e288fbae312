// The page: what is visible, selected and searched for, and what keys, wheel and mouse do to it.

const data = decode(JSON.parse(document.getElementById("data").textContent));
const node = name => document.getElementById(name);
const deviceLanes = data.devices.map((_, device) => lanesOf(data, device));
const MOST_UNFOLDED = 16, LEAST_SPAN = 20;

const view = {
  ...data.whole, zero: 0, scroll: 0, hidden: new Set(), found: new Map(), selected: null, critical: false, theme: null,
  // Beyond some devices only the first stand in full: the others are one lane each until they are clicked.
  folded: new Set(data.devices.map((_, device) => device).filter(device => device >= MOST_UNFOLDED)),
};
let placed, hits = [], hit = -1, bounds = data.whole, waiting = false;
let dark = window.matchMedia("(prefers-color-scheme: dark)").matches;

const overview = new Overview(data, node("overview"), deviceLanes);
const go = { select, zoom: zoomTo, execution, pick };
const panel = new Panel(data, node("panel"), go);
const tables = new Tables(data, node("tabs"), node("sheet"), go);

// ---- drawing
function draw() {
  waiting = false;
  view.scroll = node("scroller").scrollTop;
  overview.draw(view);
  new Painter(data, node("lanes"), placed.rows, placed.place, view).draw();
}
function soon() {
  if (!waiting) requestAnimationFrame(draw);
  waiting = true;
}
function place() {
  const room = node("scroller").clientHeight;
  placed = layout(deviceLanes, view.folded, data.flights.length, bounds, room);
  node("tall").style.height = `${Math.max(placed.height - room, 0)}px`;
  search(false);
  soon();
}
function setTheme() {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  view.theme = themeOf(document, data.kinds, dark);
  showLegend();
  panel.show(view.selected, view.theme);
  soon();
}

// ---- the visible stretch
function show(t0, t1) {
  const { t0: first, t1: last } = data.whole;
  const span = Math.min(Math.max(t1 - t0, LEAST_SPAN), last - first);
  view.t0 = Math.min(Math.max((t0 + t1 - span) / 2, first), last - span);
  view.t1 = view.t0 + span;
  node("tip").style.display = "none";
  soon();
}
function zoom(factor, time) {
  const span = Math.min(Math.max((view.t1 - view.t0) * factor, LEAST_SPAN), data.whole.t1 - data.whole.t0);
  const t0 = time - (time - view.t0) * span / (view.t1 - view.t0);
  show(t0, t0 + span);
}
function pan(share) {
  const by = share * (view.t1 - view.t0);
  show(view.t0 + by, view.t1 + by);
}
const spanWidth = () => node("lanes").clientWidth - GUTTER;
const timeAt = x => view.t0 + (x - GUTTER) / spanWidth() * (view.t1 - view.t0);
function extent({ flight, number }) {
  if (flight) return [data.flights[number].issued, endOf(data.flights[number])];
  return [data.slices.start[number], data.slices.end[number]];
}
function zoomTo(thing) {
  const [start, end] = extent(thing), margin = Math.max((end - start) * 1.2, 100);
  show(start - margin, end + margin);
  reveal(thing);
}
/** Scrolls to the device of a slice or flight. */
function reveal({ flight, number }) {
  const device = flight ? data.flights[number].device : data.slices.device[number];
  if (flight && view.folded.delete(device)) place();
  const { first, lastCompute } = deviceRows(placed.rows, device), scroller = node("scroller");
  const row = flight ? placed.rows[placed.place[number]] || lastCompute : lastCompute;
  const top = first.y, bottom = row.y + row.height;
  if (top < scroller.scrollTop || bottom > scroller.scrollTop + scroller.clientHeight)
    scroller.scrollTop = Math.max(bottom - scroller.clientHeight / 2, 0);
}
function chooseStep(number) {
  const step = data.steps[number];
  bounds = step ? { t0: step.start, t1: step.end } : data.whole;
  view.zero = bounds.t0;
  const margin = step ? (step.end - step.start) * 0.01 : 0;
  place();
  show(bounds.t0 - margin, bounds.t1 + margin);
}

// ---- selecting
function instructionOf({ flight, number }) {
  return flight ? data.flights[number].instruction : data.slices.instruction[number];
}
function select(thing) {
  view.selected = thing;
  panel.show(thing, view.theme);
  tables.choose(thing ? instructionOf(thing) : -1);
  if (!thing) return soon();
  const [start, end] = extent(thing);
  if (end < view.t0 || start > view.t1) zoomTo(thing);
  reveal(thing);
  soon();
}
/** Another execution of what is selected, on the same device. */
function execution(by) {
  if (!view.selected) return;
  const { flight, number } = view.selected, of = flight ? data.flightsOf : data.slicesOf;
  const deviceOf = n => flight ? data.flights[n].device : data.slices.device[n];
  const own = [...of.of(instructionOf(view.selected))].filter(n => deviceOf(n) === deviceOf(number));
  const next = { flight, number: own[following(own, own.indexOf(number), by)] };
  select(next);
  zoomTo(next);
}
/** A row of the table: of the step that is shown (else of the one whose path is known) the flight exposed longest. */
function pick(row) {
  const numbers = [...data.flightsOf.of(row.instruction)];
  const wanted = bounds === data.whole ? data.shown : data.steps.findIndex(step => step.start === bounds.t0);
  const there = numbers.filter(n => data.flights[n].step === wanted);
  const exposed = n => data.flights[n].issueEnd - data.flights[n].issued + data.flights[n].waitEnd - data.flights[n].waitBegin;
  const chosen = sorted(there.length ? there : numbers, exposed, false)[0];
  if (chosen === undefined) return;
  select({ flight: true, number: chosen });
  zoomTo(view.selected);
}
function thingAt(x, y) {
  const row = rowAt(placed.rows, y + node("scroller").scrollTop);
  if (!row || x < GUTTER) return null;
  const position = row.lane.at(timeAt(x), 3 * (view.t1 - view.t0) / spanWidth());
  if (position < 0 || view.hidden.has(row.lane.kind[position])) return null;
  return { flight: row.flight, number: row.lane.members[position] };
}

// ---- searching
function search(anew = true) {
  const wanted = matching(data.instructions, node("query").value);
  view.found = positionsOf(data, placed.rows, wanted);
  if (anew) {
    hits = hitsOf(data, wanted);
    hit = -1;
  }
  showCount();
  soon();
}
function showCount() {
  const asked = node("query").value.trim() !== "";
  node("count").textContent = !asked ? "" : hits.length ? `${hit + 1 || "-"} of ${hits.length}` : "none";
}
function jump(by) {
  // The first jump goes to what follows the left edge of the view.
  if (hit < 0 && by > 0) hit = hits.findIndex(one => one.start >= view.t0) - 1;
  hit = following(hits, Math.max(hit, -1), by);
  if (hit < 0) return;
  const thing = hits[hit];
  select(thing);
  const [start, end] = extent(thing), span = view.t1 - view.t0;
  // The scale stays as long as the match can be seen, and all of it.
  if (end - start < span / 400 || end - start > span * 0.9) zoomTo(thing);
  else show((start + end - span) / 2, (start + end + span) / 2);
  showCount();
}

// ---- legend, steps, numbers
function showLegend() {
  const legend = node("legend");
  legend.replaceChildren();
  data.kinds.forEach((kind, number) => {
    const there = data.instructions.kind.includes(number);
    if (!there) return;
    const button = add(legend, "button");
    swatch(button, kind, view.theme, number);
    button.append(kind.name);
    button.setAttribute("aria-pressed", String(!view.hidden.has(number)));
    button.addEventListener("click", () => {
      if (!view.hidden.delete(number)) view.hidden.add(number);
      showLegend();
      soon();
    });
  });
}
add(node("steps"), "option", `all ${data.steps.length} recorded`).value = -1;
data.steps.forEach((step, number) => {
  add(node("steps"), "option", `${step.number}${step.blocking ? " reference" : ""}: ${formatTime(step.end - step.start)}`).value = number;
});
showNumbers(node("numbers"), data);
setTheme();
chooseStep(data.shown);
node("steps").value = data.shown;
listen();
startAt(window.location.hash);
