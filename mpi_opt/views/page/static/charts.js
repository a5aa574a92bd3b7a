// Axes, scales and canvases.

const COLOURS = { complete: "#2f6fde", pruned: "#9aa3b2", failed: "#d1453b", running: "#e0a100", queued: "#c3c9d4",
  lost: "#f0a59f", killed: "#f0a59f", moved: "#85abeb", best: "#0b8a5c", ink: "#1d2433", soft: "#5c667a", line: "#e8ebf1",
  faint: "#c9cfda", highlight: "#e8453c" };
const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99],
  [170, 220, 50], [253, 231, 37]];

function viridis(fraction, alpha = 1) {
  const place = Math.min(Math.max(fraction, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((c, i) => Math.round(c + (place - low) * (VIRIDIS[low + 1][i] - c)));
  return `rgba(${mixed.join(",")},${alpha})`;
}

function format(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(digits - 2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(parseFloat(value.toPrecision(digits)));
}

// Math.min(...values) would fail for more than about 100,000 values.
const smallest = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const largest = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

function seconds(value) {
  if (value === null) return "–";
  if (value < 120) return `${format(value)} s`;
  return value < 7200 ? `${format(value / 60)} min` : `${format(value / 3600)} h`;
}

// An axis of the page's data: {title, kind: "linear" | "log" | "category", low, high, ticks: [[position, text], …]}. Its scale
// maps it to the pixels `from` to `to`.
function makeScale(axis, from, to) {
  const transform = axis.kind === "log" ? Math.log10 : (value) => 0.25 * value; // a quarter: no difference overflows
  const low = transform(axis.low), width = transform(axis.high) - low || 1;
  const fraction = (value) => (transform(value) - low) / width;
  // pixels of a text: the names of categories are close in a column, and cut to three characters and more in a row
  const [high, wide] = axis.kind === "category" ? [14, 24] : [24, 16 + 7 * largest(axis.ticks.map(([, text]) => text.length))];
  const every = Math.ceil(axis.ticks.length / Math.max(2, Math.abs(to - from) / (from > to ? high : wide)));
  const ticks = axis.ticks.filter((_, i) => i % every === 0).map(([value, text]) => ({ value, text }));
  return { fraction, ticks, at: (value) => from + fraction(value) * (to - from) };
}

// A base canvas, which is drawn once, and a second canvas above it, which highlights the trial under the pointer.
//
// Options: the axes `x` and `y`; `draw(figure)` draws the base and may call `mark` to make trials sensitive to the pointer;
// `highlight(figure, context, trial)` replaces the ring around the marks of a trial; margins and height in pixels.
class Figure {
  constructor(holder, options) {
    Object.assign(this, { left: 62, right: 14, top: 10, bottom: 40, height: 320, axes: true }, options);
    this.box = holder.appendChild(document.createElement("div"));
    this.box.className = "plot";
    this.box.style.height = `${this.height}px`;
    this.base = this.box.appendChild(document.createElement("canvas"));
    this.over = this.box.appendChild(document.createElement("canvas"));
    this.over.className = "over";
    this.base.addEventListener("pointermove", (event) => page.point(this.nearest(...this.pointer(event)), event));
    this.base.addEventListener("pointerleave", (event) => page.point(null, event));
    this.base.addEventListener("click", (event) => page.select(this.nearest(...this.pointer(event)), event));
    page.figures.push(this);
    this.render();
  }

  pointer(event) {
    const frame = this.base.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }

  render() {
    this.width = this.box.clientWidth;
    this.marks = [];
    if (!this.width || (this.axes && !this.x)) return; // hidden, or without data
    for (const canvas of [this.base, this.over]) {
      canvas.width = this.width * devicePixelRatio;
      canvas.height = this.height * devicePixelRatio;
      canvas.getContext("2d").scale(devicePixelRatio, devicePixelRatio);
    }
    this.context = this.base.getContext("2d");
    this.context.clearRect(0, 0, this.width, this.height);
    if (this.axes) this.drawAxes();
    this.clipped(this.context, () => this.draw(this));
    this.renderOver(page.trial);
  }

  renderOver(trial) {
    if (!this.width || !this.context) return;
    const context = this.over.getContext("2d");
    context.clearRect(0, 0, this.width, this.height);
    if (trial === null) return;
    if (this.highlight) return this.clipped(context, () => this.highlight(this, context, trial));
    for (const mark of this.marks) if (mark.trial === trial) ring(context, mark.x, mark.y);
  }

  clipped(context, draw) {
    context.save();
    context.beginPath();
    context.rect(this.left - 6, this.top - 6, this.width - this.left - this.right + 12, this.height - this.top - this.bottom + 12);
    if (this.axes) context.clip();
    draw();
    context.restore();
  }

  drawAxes() {
    const context = this.context, floor = this.height - this.bottom, end = this.width - this.right;
    this.sx = makeScale(this.x, this.left, end);
    this.sy = makeScale(this.y, floor, this.top);
    context.font = FONT;
    context.lineWidth = 1;
    for (const tick of this.sy.ticks) {
      const y = Math.round(this.sy.at(tick.value)) + 0.5;
      stroke(context, COLOURS.line, [[this.left, y], [end, y]]);
      write(context, cut(tick.text, 12), this.left - 7, y, "right", COLOURS.soft);
    }
    const room = (end - this.left) / Math.max(1, this.sx.ticks.length) / 6.2;
    for (const tick of this.sx.ticks) {
      const x = Math.round(this.sx.at(tick.value)) + 0.5;
      if (this.x.kind !== "category") stroke(context, COLOURS.line, [[x, this.top], [x, floor]]);
      write(context, this.x.kind === "category" ? cut(tick.text, Math.max(3, Math.floor(room))) : tick.text, x, floor + 13, "center", COLOURS.soft);
    }
    stroke(context, COLOURS.faint, [[this.left, this.top], [this.left, floor], [end, floor]]);
    write(context, this.x.title || "", (this.left + end) / 2, floor + 30, "center", COLOURS.ink);
    context.save();
    context.translate(13, (this.top + floor) / 2);
    context.rotate(-Math.PI / 2);
    write(context, this.y.title || "", 0, 0, "center", COLOURS.ink);
    context.restore();
  }

  // Makes a trial sensitive to the pointer at this place.
  mark(x, y, trial) {
    this.marks.push({ x, y, trial });
  }

  // The trial with the nearest mark within 20 pixels, or null.
  nearest(x, y) {
    let found = null, least = 20 ** 2;
    for (const mark of this.marks) {
      const distance = (mark.x - x) ** 2 + (mark.y - y) ** 2;
      if (distance < least) [found, least] = [mark.trial, distance];
    }
    return found;
  }
}

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

function stroke(context, colour, points, width = 1) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}

function dot(context, colour, x, y, radius) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

// A point of a trial. It is a triangle at the end of the vertical axis if it is outside of the range.
function point(figure, colour, x, value, radius, trial) {
  const { low, high } = figure.y, c = figure.context, floor = figure.height - figure.bottom;
  if (value >= low && value <= high) {
    dot(c, colour, x, figure.sy.at(value), radius);
    return figure.mark(x, figure.sy.at(value), trial);
  }
  const [tip, base] = value > high ? [figure.top - 5, figure.top + 4] : [floor + 5, floor - 4];
  c.fillStyle = colour;
  c.beginPath();
  c.moveTo(x, tip);
  c.lineTo(x - 5, base);
  c.lineTo(x + 5, base);
  c.fill();
  figure.mark(x, (tip + base) / 2, trial);
}

function ring(context, x, y) {
  context.strokeStyle = COLOURS.highlight;
  context.lineWidth = 2.5;
  context.beginPath();
  context.arc(x, y, 6.5, 0, 2 * Math.PI);
  context.stroke();
}

function star(context, x, y, radius) {
  context.beginPath();
  for (let i = 0; i < 10; i++) {
    const r = i % 2 ? radius * 0.42 : radius, angle = (Math.PI / 5) * i - Math.PI / 2;
    context.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
  }
  context.closePath();
  context.fillStyle = COLOURS.highlight;
  context.strokeStyle = "#fff";
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
}

function write(context, text, x, y, align, colour) {
  context.font = FONT;
  context.fillStyle = colour;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillText(text, x, y);
}

// Replaces the middle of a long text by …, because neighbouring names often have the same beginning.
function cut(text, length) {
  if (text.length <= length) return text;
  const half = Math.max(1, Math.floor((length - 1) / 2));
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}
