// The whole run in a strip, with the visible stretch in a frame, and the time axis below it.

const OVERVIEW_HEIGHT = 40, AXIS_HEIGHT = 24, MOST_STRIPS = 10;

class Overview {
  constructor(document, canvas, deviceLanes) {
    Object.assign(this, { document, canvas, picture: null, drawn: "" });
    // A few devices, evenly chosen, where all would be thinner than a line.
    const every = Math.max(1, Math.ceil(deviceLanes.length / MOST_STRIPS));
    this.lanes = deviceLanes.filter((_, device) => device % every === 0).map(lanes => lanes.leaves);
  }
  x(time) {
    const { t0, t1 } = this.document.whole;
    return GUTTER + (time - t0) / (t1 - t0) * (this.canvas.clientWidth - GUTTER);
  }
  time(x) {
    const { t0, t1 } = this.document.whole;
    return t0 + (x - GUTTER) / (this.canvas.clientWidth - GUTTER) * (t1 - t0);
  }

  draw(view) {
    const { pen, width } = penOf(this.canvas);
    const key = `${width} ${view.theme.dark} ${[...view.hidden]}`;
    if (key !== this.drawn) this.render(width, view);
    this.drawn = key;
    pen.drawImage(this.picture, 0, 0, width, OVERVIEW_HEIGHT);
    const { theme } = view, x0 = this.x(view.t0), x1 = Math.max(this.x(view.t1), x0 + 2);
    pen.fillStyle = theme.dark ? "rgba(0,0,0,.55)" : "rgba(255,255,255,.65)";
    pen.fillRect(GUTTER, 0, x0 - GUTTER, OVERVIEW_HEIGHT);
    pen.fillRect(x1, 0, width - x1, OVERVIEW_HEIGHT);
    pen.strokeStyle = theme.ink;
    pen.strokeRect(x0 + 0.5, 0.5, x1 - x0 - 1, OVERVIEW_HEIGHT - 1);
    this.axis(pen, width, view);
  }

  /** The strip does not change while one moves through it, so it is drawn once. */
  render(width, view) {
    const scale = window.devicePixelRatio || 1, { theme } = view, { t0, t1 } = this.document.whole;
    this.picture = new OffscreenCanvas(Math.max(width * scale, 1), OVERVIEW_HEIGHT * scale);
    const pen = this.picture.getContext("2d");
    pen.scale(scale, scale);
    const tall = OVERVIEW_HEIGHT / this.lanes.length;
    this.lanes.forEach((lane, n) => {
      const fill = (x, wide, kind, share) => {
        pen.globalAlpha = 0.25 + 0.75 * share;
        pen.fillStyle = this.document.kinds[kind].waiting ? theme.wait : theme.kinds[kind];
        pen.fillRect(GUTTER + x, n * tall + 1, wide, Math.max(tall - 1, 1));
      };
      const shown = kind => !view.hidden.has(kind);
      eachVisible(lane, t0, t1, width - GUTTER, shown,
        (position, x0, x1) => shown(lane.kind[position]) && fill(x0, x1 - x0, lane.kind[position], 1),
        (pixel, kind, share) => fill(pixel, 1, kind, share));
    });
    pen.globalAlpha = Math.min(1, width / (8 * this.document.steps.length));
    pen.fillStyle = theme.muted;
    for (const step of this.document.steps) pen.fillRect(this.x(step.start), 0, 1, OVERVIEW_HEIGHT);
  }

  axis(pen, width, view) {
    const { theme } = view, span = width - GUTTER, y = OVERVIEW_HEIGHT;
    pen.textBaseline = "middle";
    for (const [time, text] of ticks(view.t0, view.t1, view.zero, span, 110)) {
      const x = Math.round(GUTTER + (time - view.t0) / (view.t1 - view.t0) * span);
      pen.fillStyle = theme.line;
      pen.fillRect(x, y + 4, 1, AXIS_HEIGHT - 4);
      pen.fillStyle = theme.muted;
      if (x + 4 + pen.measureText(text).width < width) pen.fillText(text, x + 4, y + AXIS_HEIGHT / 2 + 1);
    }
    pen.fillStyle = theme.muted;
    pen.fillText("whole run", 4, y / 2);
    pen.fillText(formatTime(view.t1 - view.t0), 4, y + AXIS_HEIGHT / 2 + 1);
  }
}
