// The step's numbers in the header, and the tables below the timeline.

const COLLECTIVE_COLUMNS = [
  // heading, what it sorts by (a string as letters), as text, what it means
  ["collective", row => row.name, row => row.name],
  ["kind", row => row.kindName, row => row.kindName],
  ["bytes", row => row.bytes, row => formatBytes(row.bytes)],
  ["group", row => row.group, row => String(row.group)],
  ["times", row => row.executions, row => String(+row.executions.toFixed(2))],
  ["time", row => row.seconds, row => formatTime(row.seconds), "from the issue by the last device until the bytes have landed"],
  ["alone", row => row.alone, row => formatTime(row.alone), "the same time in reference steps, or predicted"],
  ["hidden", row => row.hidden, row => formatTime(row.hidden), "part of its time in which the device computes"],
  ["slowed", row => row.slowed, row => formatTime(row.slowed), "additional time of kernels that overlap it"],
  ["effective", row => row.effective, row => formatTime(row.effective), "time saved: exposed in reference steps, minus exposed, minus slowed"],
  ["exposed", row => row.exposed, row => formatTime(row.exposed), "time in which the device starts it or waits for it"],
  ["predicted", row => row.predictedExposed ?? -1, row => formatTime(row.predictedExposed), "predicted exposed time"],
  ["why", row => row.why, row => row.why],
];

const DEVICE_COLUMNS = [
  ["device", row => row.device, (row, data) => data.devices[row.device]],
  ["step", row => row.seconds, row => formatTime(row.seconds)],
  ["compute", row => row.compute, row => formatTime(row.compute)],
  ["slowed", row => row.slowed, row => formatTime(row.slowed)],
  ["exposed", row => row.exposed, row => formatTime(row.exposed)],
  ["awaited", row => row.awaited, row => formatTime(row.awaited), "time in which other devices waited because this one arrived last"],
  ["no core", row => row.stolen ?? -1, row => formatTime(row.stolen), "time in which its thread was runnable but had no core"],
  ["clock", row => row.clock, row => formatTime(row.clock), "uncertainty of its times"],
];

/** The step's figures as data.py has made them: [what, nanoseconds, of how many it is a part or null, hint]. */
function showNumbers(node, data) {
  for (const [word, ns, whole, hint] of data.numbers) {
    const tile = add(node, "div");
    tile.title = hint;
    add(tile, "b", formatTime(ns));
    add(tile, "span", whole ? `${word}, ${formatShare(ns, whole)}` : word);
  }
}

/** The rows of a table, sorted by a column: what is text in rising order, numbers largest first, or turned around. */
function sorted(rows, valueOf, turned) {
  const order = (one, other) => {
    const [a, b] = [valueOf(one), valueOf(other)];
    return (typeof a === "string" ? a.localeCompare(b) : b - a) * (turned ? -1 : 1);
  };
  return [...rows].sort(order);
}

class Tables {
  /** `go.pick(row)`: what a click on a collective does. */
  constructor(data, tabs, sheet, go) {
    Object.assign(this, { data, tabs, sheet, go, chosen: -1 });
    this.pages = {
      [`collectives (${data.collectives.length})`]: [data.collectives, COLLECTIVE_COLUMNS, 10, go.pick],
      [`devices (${data.devices.length})`]: [data.figures, DEVICE_COLUMNS, 4, null],
    };
    this.order = {};
    for (const name of Object.keys(this.pages)) {
      this.order[name] = { by: this.pages[name][2], turned: false };
      const tab = add(tabs, "button", name);
      tab.setAttribute("role", "tab");
      tab.addEventListener("click", () => this.show(name));
    }
    this.show(Object.keys(this.pages)[0]);
  }

  show(name) {
    this.name = name;
    for (const tab of this.tabs.children) tab.setAttribute("aria-selected", String(tab.textContent === name));
    const [rows, columns, , click] = this.pages[name], order = this.order[name];
    this.sheet.replaceChildren();
    const table = add(this.sheet, "table"), head = add(add(table, "thead"), "tr"), body = add(table, "tbody");
    const numeric = columns.map(([, valueOf]) => rows.length > 0 && typeof valueOf(rows[0]) === "number");
    columns.forEach(([word, , , hint], n) => {
      const mark = order.by === n ? (order.turned ? " ▴" : " ▾") : "";
      const cell = add(head, "th", word + mark, numeric[n] ? "number" : "");
      cell.dataset.by = n;
      if (hint) cell.title = hint;
      cell.addEventListener("click", () => {
        this.order[name] = { by: n, turned: order.by === n && !order.turned };
        this.show(name);
      });
    });
    const most = greatest(rows.map(row => row.exposed));
    for (const row of sorted(rows, columns[order.by][1], order.turned)) {
      const line = add(body, "tr");
      columns.forEach(([word, , textOf], n) => {
        const cell = add(line, "td", undefined, numeric[n] ? "number" : word === "why" ? "why" : "");
        if (word === "exposed" && most > 0) add(cell, "span", "", "bar").style.width = `${60 * row.exposed / most}px`;
        cell.append(textOf(row, this.data));
      });
      if (!click) continue;
      line.dataset.key = row.instruction;
      line.addEventListener("click", () => click(row));
    }
    this.choose(this.chosen);
  }

  /** Marks the row of an instruction, none where it has none. */
  choose(instruction) {
    this.chosen = instruction;
    for (const line of this.sheet.querySelectorAll("tr[data-key]"))
      line.classList.toggle("selected", line.dataset.key === String(instruction));
  }
}
