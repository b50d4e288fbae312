// Drawing the lanes of the visible stretch on a canvas. A painter draws what a view says and keeps nothing of it.

const GUTTER = 136, FOOT = 5, FONT = "11px system-ui, sans-serif";

/** A canvas's pen in CSS pixels, the canvas cleared and as fine as the screen. */
function penOf(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  return { pen, width, height };
}

/** Colours as the style sheet has them now, light or dark. */
function themeOf(document, kinds, dark) {
  const style = getComputedStyle(document.documentElement);
  const named = name => style.getPropertyValue(`--${name}`).trim();
  return {
    paper: named("paper"), ink: named("ink"), muted: named("muted"), line: named("line"), band: named("band"),
    accent: named("accent"), found: named("found"), wait: named("wait"),
    kinds: kinds.map(kind => dark ? kind.dark : kind.light),
    inks: kinds.map(kind => inkOn(dark ? kind.dark : kind.light)),
    dark,
  };
}

/** Black or white, whichever is read more easily on `color`, "#rrggbb" (relative luminance of WCAG 2). */
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map(n => {
    const part = parseInt(color.slice(n, n + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

/** Stripes that say waiting, whatever colours an eye can tell apart. */
function stripes(pen, theme) {
  const tile = new OffscreenCanvas(6, 6), ink = tile.getContext("2d");
  ink.fillStyle = theme.paper;
  ink.fillRect(0, 0, 6, 6);
  ink.strokeStyle = theme.wait;
  ink.lineWidth = 1.8;
  for (const shift of [-6, 0, 6]) {
    ink.beginPath();
    ink.moveTo(shift - 1, 7);
    ink.lineTo(shift + 7, -1);
    ink.stroke();
  }
  return pen.createPattern(tile, "repeat");
}

/** `text`, or as much of its beginning as `room` pixels hold. */
function fitted(pen, text, room) {
  const width = pen.measureText(text).width;
  if (width <= room) return text;
  const most = Math.floor(text.length * room / width);
  return most >= 4 ? `${text.slice(0, most - 1)}…` : "";
}

class Painter {
  /**
   * `view`: {t0, t1, zero, scroll, hidden, folded, found, selected, critical, theme}; `rows` and `place` from layout.
   * found: by lane the positions that a search found. selected: {flight, number} or null. zero: where the axis begins.
   */
  constructor(document, canvas, rows, place, view) {
    Object.assign(this, { document, rows, place, view }, penOf(canvas));
    this.span = this.width - GUTTER;
    this.waiting = stripes(this.pen, view.theme);
  }
  x(time) { return GUTTER + (time - this.view.t0) / (this.view.t1 - this.view.t0) * this.span; }

  draw() {
    const { pen, view } = this;
    this.background();
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, 0, this.span, this.height);
    pen.clip();
    pen.translate(0, -view.scroll);
    this.visible = this.rows.filter(row => row.y + row.height > view.scroll && row.y < view.scroll + this.height);
    for (const row of this.visible) this.lane(row);
    if (view.found.size) for (const row of this.visible) this.highlights(row);
    if (view.critical) this.criticalPath();
    this.selection();
    pen.restore();
    this.labels();
  }

  /** Steps as bands, blocking ones shaded; a line at each tick. */
  background() {
    const { pen, view, height } = this;
    for (const step of this.document.steps) {
      if (step.end < view.t0 || step.start > view.t1) continue;
      const x0 = Math.max(this.x(step.start), GUTTER), x1 = Math.min(this.x(step.end), this.width);
      pen.fillStyle = view.theme.band;
      if (step.blocking) pen.fillRect(x0, 0, x1 - x0, height);
    }
    pen.fillStyle = view.theme.line;
    for (const [time] of ticks(view.t0, view.t1, view.zero, this.span, 110))
      pen.fillRect(Math.round(this.x(time)), 0, 1, height);
  }

  lane(row) {
    const { pen, view } = this, { kinds } = this.document;
    const faded = view.found.size ? 0.3 : 1;
    const shown = kind => !view.hidden.has(kind);
    const wide = (position, x0, x1) => {
      const kind = row.lane.kind[position];
      if (!shown(kind)) return;
      pen.globalAlpha = faded;
      if (row.flight) this.flight(row, this.document.flights[row.lane.members[position]], kind);
      else this.slice(row, row.lane.members[position], kind, GUTTER + x0, GUTTER + x1);
    };
    const column = (pixel, kind, share) => {
      pen.globalAlpha = faded * (0.25 + 0.75 * share);
      pen.fillStyle = kinds[kind].waiting ? view.theme.wait : view.theme.kinds[kind];
      pen.fillRect(GUTTER + pixel, row.y, 1, row.height);
    };
    eachVisible(row.lane, view.t0, view.t1, this.span, shown, wide, column);
    pen.globalAlpha = 1;
  }

  slice(row, number, kind, x0, x1) {
    const { pen, view } = this, { theme } = view;
    const left = Math.max(x0, GUTTER - 2), right = Math.min(x1, this.width + 2);
    const gap = x1 - x0 > 3 ? 0.5 : 0;
    const waits = this.document.kinds[kind].waiting;
    pen.fillStyle = waits ? this.waiting : theme.kinds[kind];
    pen.fillRect(left, row.y, right - left - gap, row.height);
    if (waits && x1 - x0 > 3) {
      pen.strokeStyle = theme.wait;
      pen.strokeRect(left + 0.5, row.y + 0.5, right - left - gap - 1, row.height - 1);
    }
    const { name } = this.document.instructions;
    this.label(name[this.document.slices.instruction[number]], left, right, row, waits ? theme.ink : theme.inks[kind], waits);
  }

  label(text, left, right, row, ink, boxed) {
    const { pen } = this, from = Math.max(left, GUTTER) + 4, room = Math.min(right, this.width) - from - 3;
    if (room < 24) return;
    const shown = fitted(pen, text, room);
    if (boxed && shown) {
      pen.fillStyle = this.view.theme.paper;
      pen.fillRect(from - 2, row.y + 2, pen.measureText(shown).width + 4, row.height - 4);
    }
    pen.fillStyle = ink;
    pen.textBaseline = "middle";
    // In flight, the lowest part is for the stripes of waiting.
    pen.fillText(shown, from, row.y + (row.height - (row.flight ? FOOT : 0)) / 2 + 0.5);
  }

  /** Pale until the last peer is there, full while bytes move, a thread until taken; stripes below where it is waited for. */
  flight(row, one, kind) {
    const { pen, view } = this, { theme } = view, alpha = pen.globalAlpha;
    // Clocks differ a little, so that a peer may seem to come after its bytes.
    const met = Math.min(Math.max(one.arrived, one.issued), one.landed);
    const times = [one.issued, met, one.landed, endOf(one)];
    const [issued, arrived, landed, end] = times.map(time => this.x(time));
    const { y, height } = row;
    pen.fillStyle = theme.kinds[kind];
    pen.globalAlpha = alpha * 0.4;
    pen.fillRect(issued, y, Math.max(arrived - issued, 0), height);
    pen.globalAlpha = alpha;
    pen.fillRect(arrived, y, Math.max(landed - arrived, 1), height);
    pen.fillRect(landed, y + height / 2 - 1, end - landed, 2);
    if (one.waitEnd > one.waitBegin) {
      const from = this.x(one.waitBegin), to = this.x(one.waitEnd);
      pen.fillStyle = to - from > 4 ? this.waiting : theme.wait;
      pen.fillRect(from, y + height - FOOT, Math.max(to - from, 1), FOOT);
    }
    this.label(this.document.instructions.name[one.instruction], arrived, landed, row, theme.inks[kind], false);
  }

  /** What the search found, at least two pixels wide, however narrow it is. */
  highlights(row) {
    const { pen, view } = this, { lane } = row;
    const from = lowerBound(lane.end, view.t0), last = lowerBound(lane.start, view.t1);
    const hits = view.found.get(lane);
    pen.strokeStyle = pen.fillStyle = view.theme.found;
    pen.lineWidth = 2;
    for (let n = lowerBound(hits, from); n < hits.length && hits[n] < last;) {
      const position = hits[n], x0 = this.x(lane.start[position]), x1 = this.x(lane.end[position]);
      if (x1 - x0 > 6) {
        this.plain(row, position);
        pen.strokeRect(x0 + 1, row.y + 1, x1 - x0 - 2, row.height - 2);
        n++;
      } else {
        pen.fillRect(x0, row.y, Math.max(x1 - x0, 2), row.height);
        const next = lowerBound(lane.start, lane.start[position] + 2 * (view.t1 - view.t0) / this.span);
        n = Math.max(n + 1, lowerBound(hits, next));
      }
    }
    pen.lineWidth = 1;
  }

  /** A slice again, not faded. */
  plain(row, position) {
    const { pen } = this, kind = row.lane.kind[position], number = row.lane.members[position];
    pen.save();
    pen.lineWidth = 1;
    if (row.flight) this.flight(row, this.document.flights[number], kind);
    else this.slice(row, number, kind, this.x(row.lane.start[position]), this.x(row.lane.end[position]));
    pen.restore();
  }

  /** A frame around what was clicked; for a collective, around all members' parts, with arrows between them. */
  selection() {
    const { pen, view } = this, { selected } = view;
    if (!selected) return;
    const met = selected.flight ? meetingOf(this.document, selected.number) : [];
    if (selected.flight) for (const flow of flowsOf(this.document, selected.number)) this.arrow(...flow, selected.number);
    pen.strokeStyle = view.theme.ink;
    pen.lineWidth = 2;
    for (const row of this.rows) {
      const wanted = selected.flight === row.flight ? (row.flight ? met : [selected.number]) : [];
      for (const number of wanted) {
        const position = row.lane.members.indexOf(number);
        if (position < 0) continue;
        const x0 = this.x(row.lane.start[position]), x1 = this.x(row.lane.end[position]);
        pen.strokeRect(x0 - 1, row.y - 1, Math.max(x1 - x0, 1) + 2, row.height + 2);
      }
    }
    pen.lineWidth = 1;
  }

  /** From where `from` was issued to where `to` landed; pale where neither is the selected one. */
  arrow(from, to, selected) {
    const { pen, document, view } = this;
    const [first, last] = [this.rows[this.place[from]], this.rows[this.place[to]]];
    if (!first || !last) return;
    const x0 = this.x(document.flights[from].issued), x1 = this.x(document.flights[to].landed);
    const y0 = first.y + first.height / 2, y1 = last.y + last.height / 2;
    const bend = Math.max(Math.abs(x1 - x0) / 2, 18);
    pen.globalAlpha = from === selected || to === selected ? 0.95 : 0.25;
    pen.strokeStyle = pen.fillStyle = view.theme.accent;
    pen.lineWidth = 1.8;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x1 - 8, y1 - 4);
    pen.lineTo(x1 - 8, y1 + 4);
    pen.fill();
    pen.globalAlpha = 1;
    pen.lineWidth = 1;
  }

  /** A line below the compute of whoever it runs through, dashed while bytes move, crossing over where it changes devices. */
  criticalPath() {
    const { pen, view, document } = this;
    let before = null;
    pen.strokeStyle = view.theme.accent;
    pen.lineWidth = 3;
    for (const piece of document.path) {
      const row = deviceRows(this.rows, piece.device).lastCompute, y = row.y + row.height;
      const x0 = this.x(piece.start), x1 = this.x(piece.end);
      if (x1 >= GUTTER && x0 <= this.width) {
        pen.setLineDash(piece.kind === "compute" ? [] : [3, 3]);
        pen.beginPath();
        pen.moveTo(x0, y);
        pen.lineTo(Math.max(x1, x0 + 0.5), y);
        pen.stroke();
        if (before && before.device !== piece.device) this.crossing(x0, before.y, y);
      }
      before = { device: piece.device, y };
    }
    pen.setLineDash([]);
    pen.lineWidth = 1;
  }

  crossing(x, from, to) {
    const { pen } = this;
    pen.save();
    pen.lineWidth = 1.2;
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(x, from);
    pen.lineTo(x, to);
    pen.stroke();
    pen.restore();
  }

  labels() {
    const { pen, view } = this, { theme } = view;
    pen.textBaseline = "middle";
    for (const row of this.visible) {
      const y = row.y - view.scroll + row.height / 2;
      pen.font = `bold ${FONT}`;
      pen.fillStyle = theme.ink;
      if (row.first) pen.fillText(fitted(pen, `${view.folded.has(row.device) ? "▸" : "▾"} ${this.document.devices[row.device]}`, 80), 6, y);
      pen.font = FONT;
      pen.fillStyle = theme.muted;
      pen.textAlign = "right";
      pen.fillText(row.label, GUTTER - 6, y);
      pen.textAlign = "left";
    }
    pen.fillStyle = theme.line;
    pen.fillRect(GUTTER - 1, 0, 1, this.height);
  }
}
