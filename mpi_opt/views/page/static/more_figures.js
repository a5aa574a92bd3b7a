// Parallel coordinates, learning curves, folds and the timeline of the blocks.

function parallel() {
  const holder = element("parallel-plot"), clear = element("parallel-clear");
  if (!RANKED.length) return empty(holder, "no complete trial yet");
  const gaps = (i) => RANKED.some((t) => DATA.values[i][t] === null);
  const columns = [...DATA.space.map((dimension, i) => ({ axis: axisOf(dimension), at: (t) => DATA.values[i][t], hasGaps: gaps(i) })),
    { axis: figureOfMeritAxis(), at: (t) => T.figure_of_merit[t] }];
  const kept = columns.map(() => null); // the part of each axis that is kept, in fractions
  const height = (f, column, value) => (value === null ? f.height - 18 : Math.min(f.height - f.bottom, Math.max(f.top, column.scale.at(value))));
  const passes = (t) => columns.every((column, i) => {
    if (!kept[i]) return true;
    const value = column.at(t), fraction = value === null ? -1 : column.scale.fraction(value);
    return fraction >= kept[i][0] - 1e-9 && fraction <= kept[i][1] + 1e-9;
  });
  const path = (f, t) => columns.map((column, i) => [f.column(i), height(f, column, column.at(t))]);
  const figure = new Figure(holder, {
    height: 380, axes: false, top: 34, bottom: 34, left: 64, right: 70,
    column(i) { return this.left + (i * (this.width - this.left - this.right)) / (columns.length - 1); },
    draw(f) {
      for (const column of columns) column.scale = makeScale(column.axis, f.height - f.bottom, f.top);
      f.lines = RANKED.filter(passes);
      f.spacing = f.column(1) - f.column(0);
      const alpha = Math.min(0.75, Math.max(0.06, 150 / f.lines.length));
      if (kept.some(Boolean) && RANKED.length < 3000) for (const t of RANKED) stroke(f.context, "rgba(200,206,216,.25)", path(f, t), 0.7);
      f.lines.slice().reverse().forEach((t) => stroke(f.context, shade(t, RANK.get(t) < 10 ? 0.95 : alpha), path(f, t), RANK.get(t) < 10 ? 2 : 1));
      columns.forEach((column, i) => drawColumn(f, column, f.column(i), kept[i]));
    },
    highlight(f, context, trial) { if (RANK.has(trial)) stroke(context, COLOURS.held, path(f, trial), 3); },
    nearest(x, y) {
      const i = Math.min(columns.length - 2, Math.max(0, Math.floor(((x - this.left) / (this.width - this.left - this.right)) * (columns.length - 1))));
      const part = (x - this.column(i)) / (this.column(i + 1) - this.column(i));
      let found = null, least = 9;
      for (const t of this.lines || []) {
        const [from, to] = [height(this, columns[i], columns[i].at(t)), height(this, columns[i + 1], columns[i + 1].at(t))];
        const distance = Math.abs(from + part * (to - from) - y);
        if (distance < least) [found, least] = [t, distance];
      }
      return found;
    },
  });
  brush(figure, columns, kept, clear);
}

function drawColumn(f, column, x, kept) {
  const c = f.context;
  stroke(c, COLOURS.soft, [[x, f.top], [x, f.height - f.bottom]], 1.4);
  for (const tick of column.scale.ticks) {
    const text = cut(tick.text, Math.max(3, Math.floor(f.spacing / 9))), y = column.scale.at(tick.value);
    c.fillStyle = "rgba(255,255,255,.8)";
    c.font = FONT;
    c.fillRect(x + 4, y - 7, c.measureText(text).width + 4, 14);
    write(c, text, x + 6, y, "left", COLOURS.soft);
  }
  write(c, cut(column.axis.title, Math.max(4, Math.floor(f.spacing / 7.5))), x, 14, "center", COLOURS.ink);
  if (column.hasGaps) write(c, "inactive", x, f.height - 5, "center", COLOURS.soft);
  if (!kept) return;
  const [bottom, top] = kept.map((fraction) => f.height - f.bottom - fraction * (f.height - f.bottom - f.top));
  c.fillStyle = "rgba(47,111,222,.25)";
  c.fillRect(x - 7, top, 14, bottom - top);
}

// Dragging along an axis selects the trials with values in this part of it; a click on the axis selects all trials again.
function brush(figure, columns, kept, clear) {
  let active = null, from = 0;
  const fraction = (y) => Math.min(1, Math.max(0, (figure.height - figure.bottom - y) / (figure.height - figure.bottom - figure.top)));
  const update = () => {
    clear.hidden = !kept.some(Boolean);
    figure.render();
  };
  figure.base.addEventListener("pointerdown", (event) => {
    const [x, y] = figure.pointer(event);
    active = columns.findIndex((_, i) => Math.abs(figure.column(i) - x) < 12);
    if (active < 0) return (active = null);
    from = fraction(y);
    figure.base.setPointerCapture(event.pointerId);
  });
  figure.base.addEventListener("pointermove", (event) => {
    if (active === null) return;
    const to = fraction(figure.pointer(event)[1]);
    kept[active] = Math.abs(to - from) < 0.01 ? null : [Math.min(from, to), Math.max(from, to)];
    update();
  });
  figure.base.addEventListener("pointerup", () => (active = null));
  clear.addEventListener("click", () => {
    kept.fill(null);
    update();
  });
}

function curves() {
  const holder = element("curves-plot"), choice = element("curves-metric"), names = Object.keys(DATA.curves);
  choice.parentElement.hidden = !names.length;
  if (!names.length) return empty(holder, "nothing was recorded epoch by epoch");
  names.forEach((name) => choice.add(new Option(name)));
  const figure = new Figure(holder, {
    height: 330, x: { kind: "linear", low: 0, high: 1 }, y: { kind: "linear", low: 0, high: 1 }, set: { lines: [] },
    path(line) {
      return line.values.map((v, i) => [this.sx.at(i * this.set.stride), v === null ? null : this.sy.at(v)]).filter((p) => p[1] !== null);
    },
    draw(f) {
      const top = f.set.lines.filter((line) => RANK.get(line.trial) < 10);
      for (const line of f.set.lines) if (!top.includes(line)) stroke(f.context, `rgba(160,168,184,${f.set.lines.length > 500 ? 0.12 : 0.35})`, f.path(line), 1);
      top.sort((a, b) => RANK.get(b.trial) - RANK.get(a.trial));
      for (const line of top) stroke(f.context, viridis(RANK.get(line.trial) / 11), f.path(line), RANK.get(line.trial) ? 1.6 : 3);
    },
    highlight(f, context, trial) {
      for (const line of f.set.lines) if (line.trial === trial) stroke(context, COLOURS.held, f.path(line), 3);
    },
    nearest(x, y) {
      let found = null, least = 16;
      const epoch = Math.round((((x - this.left) / (this.width - this.left - this.right)) * this.x.high) / this.set.stride);
      for (const line of this.set.lines) {
        const value = line.values[epoch];
        const distance = value === undefined || value === null ? Infinity : Math.abs(this.sy.at(value) - y);
        if (distance < least) [found, least] = [line.trial, distance];
      }
      return found;
    },
  });
  const show = () => {
    figure.set = DATA.curves[choice.value];
    const longest = Math.max(...figure.set.lines.map((line) => line.values.length));
    figure.x = { kind: "linear", low: 0, high: Math.max(1, (longest - 1) * figure.set.stride), title: "epoch" };
    figure.y = { kind: "linear", low: figure.set.limits[0], high: figure.set.limits[1], title: choice.value };
    figure.render();
  };
  choice.addEventListener("change", show);
  show();
}

function folds() {
  const holder = element("folds-plot"), n = T.number.at(-1) > 999 ? 12 : 20;
  const chosen = RANKED.filter((t) => DATA.folds[t] && DATA.folds[t].length > 1).slice(0, n);
  if (!chosen.length) return empty(holder, "the trials have one fold each");
  const all = chosen.flatMap((t) => DATA.folds[t]), margin = 0.08 * (Math.max(...all) - Math.min(...all) || 1);
  new Figure(holder, {
    height: 330, x: { kind: "category", labels: chosen.map((t) => String(T.number[t])), title: "trial" },
    y: { kind: "linear", low: Math.min(...all) - margin, high: Math.max(...all) + margin, title: FIGURE_OF_MERIT },
    draw(f) {
      chosen.forEach((t, i) => {
        const x = f.sx.at(i), mean = f.sy.at(T.figure_of_merit[t]), ys = DATA.folds[t].map(f.sy.at);
        stroke(f.context, COLOURS.faint, [[x, Math.min(...ys)], [x, Math.max(...ys)]], 2);
        ys.forEach((y) => dot(f.context, shade(t, 0.8), x, y, 3.6));
        stroke(f.context, COLOURS.ink, [[x - 8, mean], [x + 8, mean]], 2.4);
        [...ys, mean].forEach((y) => f.mark(x, y, t));
      });
    },
  });
}

function blocks() {
  const holder = element("blocks-plot"), B = DATA.blocks;
  if (!B) return empty(holder, "no trial has begun yet");
  const row = B.names.length > 40 ? 9 : B.names.length > 12 ? 16 : 26;
  const [unit, name] = B.span > 7200 ? [3600, "h"] : B.span > 120 ? [60, "min"] : [1, "s"];
  new Figure(holder, {
    height: 54 + row * B.names.length, x: { kind: "linear", low: 0, high: B.span / unit || 1, title: `time since ${B.began} UTC [${name}]` },
    y: { kind: "linear", low: B.names.length, high: 0, title: "block" },
    drawAxes() {
      Figure.prototype.drawAxes.call(this);
      this.context.clearRect(18, 0, this.left - 19, this.height - this.bottom); // the rows have names of their own
      B.names.forEach((block, i) => {
        const y = this.sy.at(i + 0.5);
        if (row > 10 || i % 5 === 0) write(this.context, `${block}`, this.left - 7, y, "right", COLOURS.soft);
        this.context.fillStyle = "#f4f6fa";
        this.context.fillRect(this.left, this.sy.at(i) + 1, this.width - this.left - this.right, row - 2);
      });
    },
    draw(f) {
      f.bars = B.bars.map(([block, trial, begin, end, outcome]) => ({
        trial, x: f.sx.at(begin / unit), y: f.sy.at(block) + 1, width: Math.max(0.6, f.sx.at(end / unit) - f.sx.at(begin / unit)), outcome }));
      for (const bar of f.bars) {
        f.context.fillStyle = COLOURS[bar.outcome];
        f.context.fillRect(bar.x, bar.y, bar.width, row - 2);
        if (bar.width > 4) stroke(f.context, "rgba(255,255,255,.85)", [[bar.x, bar.y], [bar.x, bar.y + row - 2]]);
        if (bar.width > 24 && row > 20) write(f.context, String(T.number[bar.trial]), bar.x + bar.width / 2, bar.y + row / 2 - 1, "center", "#fff");
      }
    },
    highlight(f, context, trial) {
      context.strokeStyle = COLOURS.ink;
      context.lineWidth = 2.5;
      for (const bar of f.bars) if (bar.trial === trial) context.strokeRect(bar.x, bar.y, bar.width, row - 2);
    },
    nearest(x, y) {
      const bar = this.bars.findLast((b) => x >= b.x - 1 && x <= b.x + b.width + 1 && y >= b.y && y < b.y + row);
      return bar ? bar.trial : null;
    },
  });
  const outcomes = ["complete", "pruned", "failed", "lost", "killed", "running"];
  const present = outcomes.filter((o) => B.bars.some((bar) => bar[4] === o));
  key(holder, present.map((outcome) => [outcome, COLOURS[outcome]]));
}

function front() {
  if (!DATA.front) return;
  element("front").hidden = false;
  const { names, values, pareto, directions } = DATA.front;
  const pairs = names.flatMap((_, x) => names.map((_, y) => [x, y])).filter(([x, y]) => x < y);
  const choice = element("front-pair");
  for (const [x, y] of pairs) choice.add(new Option(`${names[x]} and ${names[y]}`));
  const shown = values.map((_, i) => i).filter((i) => T.state[i] === "complete" && values[i]);
  const axis = (which) => {
    const all = shown.map((i) => values[i][which]), low = Math.min(...all), high = Math.max(...all), margin = 0.05 * (high - low) || 1;
    return { kind: "linear", low: low - margin, high: high + margin, title: `${names[which]} (${directions[which]})` };
  };
  if (!shown.length) return empty(element("front-plot"), "no trial is complete yet");
  shown.sort((a, b) => pareto[a] - pareto[b]);
  const figure = new Figure(element("front-plot"), {
    height: 340,
    draw(f) {
      const [x, y] = pairs[choice.selectedIndex];
      for (const i of shown) {
        const point = [f.sx.at(values[i][x]), f.sy.at(values[i][y])];
        dot(f.context, pareto[i] ? "rgb(11,138,92)" : "rgba(47,111,222,.45)", ...point, pareto[i] ? 4.5 : 3);
        f.mark(...point, i);
      }
    },
  });
  function show() {
    const [x, y] = pairs[choice.selectedIndex];
    Object.assign(figure, { x: axis(x), y: axis(y) }).render();
  }
  choice.onchange = show;
  show();
}
