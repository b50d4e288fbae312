// Keys, wheel and mouse.

function listen() {
  const lanes = node("lanes");
  node("steps").addEventListener("change", event => chooseStep(Number(event.target.value)));
  node("query").addEventListener("input", () => search());
  node("query").addEventListener("keydown", event => {
    if (event.key === "Enter") jump(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") lanes.focus();
  });
  node("before").addEventListener("click", () => jump(-1));
  node("after").addEventListener("click", () => jump(1));
  node("critical").addEventListener("change", event => {
    view.critical = event.target.checked;
    soon();
  });
  node("reset").addEventListener("click", reset);
  node("help").addEventListener("click", () => node("keys").showModal());
  node("keys").addEventListener("click", () => node("keys").close());
  node("theme").addEventListener("click", () => {
    dark = !dark;
    setTheme();
  });
  node("scroller").addEventListener("scroll", soon);
  new ResizeObserver(() => {
    place();
    draw();  // at once: until then the browser stretches what was drawn
  }).observe(node("scroller"));
  window.addEventListener("keydown", pressed);
  lanes.addEventListener("wheel", wheeled, { passive: false });
  lanes.addEventListener("mousedown", grab);
  lanes.addEventListener("mousemove", hover);
  lanes.addEventListener("mouseleave", () => {
    node("tip").style.display = "none";
    pointer = null;
  });
  lanes.addEventListener("dblclick", event => {
    const thing = thingAt(event.offsetX, event.offsetY);
    if (thing) zoomTo(thing);
  });
  node("overview").addEventListener("mousedown", grabOverview);
  node("grip").addEventListener("mousedown", event => {
    const high = node("lower").clientHeight;
    follow(event, (_, dy) => { node("lower").style.height = `${Math.max(high - dy, 60)}px`; });
  });
}

function reset() {
  node("steps").value = -1;
  chooseStep(-1);
  select(null);
}

let pointer = null;  // where it is on the lanes
const zoomHere = factor => zoom(factor, timeAt(pointer === null ? GUTTER + spanWidth() / 2 : pointer));
const closer = () => zoomHere(0.7), farther = () => zoomHere(1 / 0.7);
const KEYS = {
  w: closer, "+": closer, ArrowUp: closer, s: farther, "-": farther, ArrowDown: farther,
  a: () => pan(-0.15), ArrowLeft: () => pan(-0.15), d: () => pan(0.15), ArrowRight: () => pan(0.15),
  f: () => view.selected && zoomTo(view.selected), 0: reset, Home: reset,
  Escape: () => { select(null); show(bounds.t0, bounds.t1); },
  n: () => jump(1), N: () => jump(-1), "[": () => execution(-1), "]": () => execution(1),
  "/": () => node("query").select(), "?": () => node("keys").showModal(), c: () => node("critical").click(),
};
function pressed(event) {
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName) && event.target.type !== "checkbox";
  const action = KEYS[event.key];
  if (typing || !action || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  action();
}

function wheeled(event) {
  if (event.offsetX < GUTTER) return;  // over the names the wheel scrolls
  event.preventDefault();
  const lines = event.deltaMode === 1 ? 16 : 1;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
    pan((event.deltaX || event.deltaY) * lines / spanWidth());
  else zoom(Math.exp(event.deltaY * lines * 0.002), timeAt(event.offsetX));
}

/** Calls `moved(dx, dy)` until the button is up, then `done(dx, dy)`; both from where it went down. */
function follow(event, moved, done = () => {}) {
  const { clientX, clientY } = event;
  const move = later => moved(later.clientX - clientX, later.clientY - clientY);
  const up = later => {
    window.removeEventListener("mousemove", move);
    window.removeEventListener("mouseup", up);
    done(later.clientX - clientX, later.clientY - clientY);
  };
  window.addEventListener("mousemove", move);
  window.addEventListener("mouseup", up);
  event.preventDefault();
}

function grab(event) {
  const lanes = node("lanes"), { offsetX: x, offsetY: y } = event;
  lanes.focus();
  if (event.shiftKey) return stretch(event, timeAt(x), dx => timeAt(x + dx));
  const { t0, t1 } = view, top = node("scroller").scrollTop, scale = (t1 - t0) / spanWidth();
  follow(event, (dx, dy) => {
    lanes.classList.add("dragging");
    show(t0 - dx * scale, t1 - dx * scale);
    node("scroller").scrollTop = top - dy;
  }, (dx, dy) => {
    lanes.classList.remove("dragging");
    if (Math.abs(dx) + Math.abs(dy) < 4) clicked(x, y);
  });
}

function clicked(x, y) {
  if (x >= GUTTER) return select(thingAt(x, y));
  const row = rowAt(placed.rows, y + node("scroller").scrollTop);
  if (!row) return;
  if (!view.folded.delete(row.device)) view.folded.add(row.device);
  place();
}

/** Zooms to the stretch from `from` to wherever the mouse is let go. */
function stretch(event, from, timeOf) {
  const said = dx => tell(event, formatTime(Math.abs(timeOf(dx) - from)));
  follow(event, said, dx => {
    node("tip").style.display = "none";
    if (Math.abs(dx) > 3) show(Math.min(from, timeOf(dx)), Math.max(from, timeOf(dx)));
  });
}

function grabOverview(event) {
  const { offsetX: x, offsetY: y } = event;
  if (y > OVERVIEW_HEIGHT) return stretch(event, timeAt(x), dx => timeAt(x + dx));
  const { t0, t1 } = view, at = overview.time(x);
  if (at >= t0 && at <= t1 && t1 - t0 < (data.whole.t1 - data.whole.t0) * 0.98) {
    const scale = overview.time(1) - overview.time(0);
    return follow(event, dx => show(t0 + dx * scale, t1 + dx * scale));
  }
  follow(event, () => {}, dx => {
    const to = overview.time(x + dx);
    if (Math.abs(dx) > 3) show(Math.min(at, to), Math.max(at, to));
    else show(at - (t1 - t0) / 2, at + (t1 - t0) / 2);
  });
}

// ---- what the pointer is over
function hover(event) {
  pointer = Math.max(event.offsetX, GUTTER);
  const thing = event.buttons ? null : thingAt(event.offsetX, event.offsetY);
  if (thing) tell(event, thing.flight ? aboutFlight(data.flights[thing.number]) : aboutSlice(thing.number));
  else node("tip").style.display = "none";
}
function tell(event, text) {
  const tip = node("tip");
  tip.textContent = text;
  tip.style.display = "block";
  const { clientX, clientY } = event, { innerWidth, innerHeight } = window;
  const right = clientX + 16 + tip.offsetWidth > innerWidth;
  tip.style.left = `${Math.max(right ? clientX - tip.offsetWidth - 8 : clientX + 16, 0)}px`;
  tip.style.top = `${Math.max(Math.min(clientY + 14, innerHeight - tip.offsetHeight - 8), 0)}px`;
}
function aboutSlice(number) {
  const { slices, instructions } = data, instruction = slices.instruction[number];
  const took = slices.end[number] - slices.start[number], reference = slices.reference[number];
  const beside = Number.isNaN(reference) ? "" : `, alone ${formatTime(reference)}`;
  return [
    instructions.name[instruction], `${formatTime(took)}${beside}`, data.kinds[instructions.kind[instruction]].name,
    instructions.opName[instruction], instructions.source[instruction],
  ].filter(Boolean).join("\n");
}
function aboutFlight(one) {
  const { instructions } = data;
  return [
    instructions.name[one.instruction],
    `in flight ${formatTime(endOf(one) - one.issued)}, last peer after ${formatTime(one.arrived - one.issued)}`,
    `waited ${formatTime(one.waitEnd - one.waitBegin)}${one.why ? `: ${one.why}` : ""}`,
    instructions.opName[one.instruction],
  ].filter(Boolean).join("\n");
}

/** `#select=NAME&from=NS&to=NS&step=N&search=TEXT&theme=dark&critical`: a link to a place, as text of a report may have. */
function startAt(hash) {
  const said = new URLSearchParams(hash.slice(1));
  if (said.has("theme") && (said.get("theme") === "dark") !== dark) node("theme").click();
  if (said.has("step")) {
    node("steps").value = said.get("step");
    chooseStep(Number(said.get("step")));
  }
  if (said.has("search")) {
    node("query").value = said.get("search");
    search();
  }
  if (said.has("critical")) node("critical").click();
  const row = data.collectives.find(one => one.name === said.get("select"));
  if (row) pick(row);
  if (said.has("from")) show(Number(said.get("from")) + view.zero, Number(said.get("to")) + view.zero);
}
