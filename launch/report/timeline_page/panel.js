// The side panel: all that is known of what was clicked. Names become text nodes, never markup.

function add(parent, tag, text, name) {
  const node = parent.ownerDocument.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  parent.append(node);
  return node;
}

function swatch(parent, kind, theme, number) {
  const node = add(parent, "i", "", kind.waiting ? "swatch waiting" : "swatch");
  node.style.background = theme.kinds[number];
  return node;
}

/** Pairs of a word and what it says, those without anything left out. */
function facts(parent, pairs) {
  const list = add(parent, "dl");
  for (const [word, said] of pairs) {
    if (said === "" || said === null || said === undefined) continue;
    add(list, "dt", word);
    add(list, "dd", said);
  }
}

class Panel {
  /** `go`: {select(thing), zoom(thing)}, what the buttons do. */
  constructor(data, node, go) { Object.assign(this, { data, node, go }); }

  show(selected, theme) {
    this.node.replaceChildren();
    if (!selected) this.nothing();
    else if (selected.flight) this.flight(selected, theme);
    else this.slice(selected, theme);
  }

  nothing() {
    add(this.node, "h2", "Nothing selected");
    add(this.node, "p", "Click a slice, a collective in flight or a row of the table below.");
    if (!this.data.notes.length) return;
    add(this.node, "h3", "Notes");
    for (const note of this.data.notes) add(this.node, "p", note);
  }

  heading(instruction, theme) {
    const { instructions, kinds } = this.data, kind = instructions.kind[instruction];
    add(this.node, "h2", instructions.name[instruction]);
    const line = add(this.node, "p");
    swatch(line, kinds[kind], theme, kind);
    line.append([...new Set([kinds[kind].name, instructions.opcode[instruction]])].filter(Boolean).join(", "));
  }

  source(instruction) {
    const { instructions } = this.data;
    facts(this.node, [["op_name", instructions.opName[instruction]], ["source", instructions.source[instruction]]]);
    if (instructions.text[instruction]) add(this.node, "pre", instructions.text[instruction]);
  }

  buttons(selected, more = []) {
    const row = add(this.node, "div", undefined, "actions");
    const button = (text, action) => add(row, "button", text).addEventListener("click", action);
    button("zoom to it", () => this.go.zoom(selected));
    button("‹ previous", () => this.go.execution(-1));
    button("next ›", () => this.go.execution(1));
    for (const [text, action] of more) button(text, action);
  }

  slice(selected, theme) {
    const { data } = this, { slices, instructions } = data, { number } = selected;
    const instruction = slices.instruction[number], device = slices.device[number], step = data.steps[slices.step[number]];
    const took = slices.end[number] - slices.start[number], reference = slices.reference[number];
    const own = durationsOf(data, instruction, device), all = durationsOf(data, instruction);
    const bytes = instructions.bytes[instruction];
    const waits = data.kinds[instructions.kind[instruction]].waiting;
    this.heading(instruction, theme);
    facts(this.node, [
      ["device", data.devices[device]],
      ["step", stepName(step)],
      ["begins", `${formatTime(slices.start[number] - step.start)} into the step`],
      ["took", formatTime(took)],
      ["alone", Number.isNaN(reference) ? "" : `${formatTime(reference)} (${formatFactor(took / reference)})`],
      ["median", `${formatTime(median(own))} here, ${formatTime(median(all))} on all devices`],
      ["min, max", `${formatTime(least(all))}, ${formatTime(greatest(all))} (${all.length} executions)`],
      ["predicted", instructions.predicted[instruction] === null ? "" : formatTime(instructions.predicted[instruction])],
      ["reads and writes", bytes ? `${formatBytes(bytes)}${waits || instructions.site[instruction] >= 0 ? "" : `, ${formatBytes(bytes / took * 1e9)}/s`}` : ""],
    ]);
    this.source(instruction);
    if (all.length > 1) this.history(instruction, number, theme);
    const awaited = slices.leaf[number] ? awaitedIn(data, number) : -1;
    const more = awaited < 0 ? [] : [["its collective", () => this.go.select({ flight: true, number: awaited })]];
    this.buttons(selected, more);
  }

  /** Each execution's duration as a dot, by step; devices side by side. */
  history(instruction, chosen, theme) {
    const { data } = this, { slices } = data;
    add(this.node, "h3", "durations by step");
    const svg = this.node.appendChild(this.node.ownerDocument.createElementNS("http://www.w3.org/2000/svg", "svg"));
    const draw = (tag, attributes, text = "") => {
      const node = svg.appendChild(this.node.ownerDocument.createElementNS("http://www.w3.org/2000/svg", tag));
      for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
      node.textContent = text;
    };
    const shown = everyNth([...data.slicesOf.of(instruction)], 800), width = 320, high = 60;
    const most = greatest(shown.map(n => slices.end[n] - slices.start[n]));
    svg.setAttribute("viewBox", `0 0 ${width} 76`);
    draw("line", { x1: 0, y1: high, x2: width, y2: high, stroke: theme.line });
    draw("text", { x: 0, y: 9 }, formatTime(most));
    const each = width / data.steps.length;
    data.steps.forEach((step, n) => {
      if (each > 14 || n === 0) draw("text", { x: each * (n + 0.3), y: 73 }, `${step.number}${step.blocking ? "b" : ""}`);
    });
    const dot = n => draw("circle", {
      cx: each * (slices.step[n] + (slices.device[n] + 0.7) / (data.devices.length + 0.4)),
      cy: high - (slices.end[n] - slices.start[n]) / most * (high - 12),
      r: n === chosen ? 4 : 2, fill: n === chosen ? theme.accent : theme.muted, "fill-opacity": n === chosen ? 1 : 0.6,
    });
    shown.forEach(dot);
    dot(chosen);
  }

  flight(selected, theme) {
    const { data } = this, { instructions } = data, one = data.flights[selected.number];
    const site = data.sites[instructions.site[one.instruction]];
    const found = data.collectives.find(row => row.instruction === one.instruction);
    const step = data.steps[one.step], since = time => `+${formatTime(time - one.issued)}`;
    const exposed = one.issueEnd - one.issued + one.waitEnd - one.waitBegin, moving = one.landed - one.arrived;
    this.heading(one.instruction, theme);
    const { length } = one.members;
    facts(this.node, [
      ["device", `${data.devices[one.device]}, with ${length - 1} other${length === 2 ? "" : "s"}`],
      ["step", stepName(step)],
      ["bytes", site ? formatBytes(site.bytes) : ""],
      ["over", site ? site.exchanges.join(", ") : ""],
      ["issued", `${formatTime(one.issued - step.start)} into the step`],
      ["last peer", `${since(one.arrived)} (${data.devices[one.last]})`],
      ["landed", since(one.landed)],
      ["waited", one.waitEnd > one.waitBegin ? `from ${since(one.waitBegin)} to ${since(one.waitEnd)}` : "not at all"],
    ]);
    facts(this.node, [
      ["time", `${formatTime(moving)} since the last peer`],
      ["hidden", `${formatTime(one.hidden)} (${formatShare(one.hidden, moving)})`],
      ["slowed", `${formatTime(one.slowed)} more in kernels that overlap it`],
      ["exposed", formatTime(exposed)],
    ]);
    this.reasons(one, exposed);
    if (found) this.typical(found);
    this.source(one.instruction);
    this.meeting(selected.number);
    this.buttons(selected);
  }

  reasons(one, exposed) {
    if (!one.parts.length && !one.why) return;
    add(this.node, "h3", "why it costs time");
    if (one.why) add(this.node, "p", one.why);
    const list = add(this.node, "dl");
    for (const [reason, ns] of one.parts) {
      add(list, "dt", reason);
      const said = add(list, "dd");
      add(said, "span", "", "bar").style.width = `${Math.max(110 * ns / Math.max(exposed, 1), 1)}px`;
      said.append(formatTime(ns));
    }
  }

  typical(found) {
    add(this.node, "h3", "typical step, all executions");
    facts(this.node, [
      ["time", `${formatTime(found.seconds)}; alone ${formatTime(found.alone)}`],
      ["exposed", `${formatTime(found.exposed)}; in reference steps ${formatTime(found.referenceExposed)}`],
      ["effective", formatTime(found.effective)],
      ["predicted", found.predicted === null ? "" : formatTime(found.predicted)],
      ["... exposed", found.predictedExposed === null ? "" : `${formatTime(found.predictedExposed)} ${found.predictedWhy}`],
    ]);
  }

  meeting(number) {
    const { data } = this, met = meetingOf(data, number), first = least(met.map(n => data.flights[n].issued));
    add(this.node, "h3", "all members, times since the first issue");
    const table = add(this.node, "table"), head = add(table, "tr");
    for (const word of ["", "issued", "landed", "exposed"]) add(head, "th", word, "number");
    for (const n of met) {
      const one = data.flights[n], row = add(table, "tr");
      add(row, "td", data.devices[one.device]);
      const exposed = one.issueEnd - one.issued + one.waitEnd - one.waitBegin;
      for (const time of [one.issued - first, one.landed - first, exposed]) add(row, "td", formatTime(time), "number");
    }
  }
}
