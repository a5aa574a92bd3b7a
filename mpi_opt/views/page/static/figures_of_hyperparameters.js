// Figures of hyperparameters: importance, pairs, slices, and parallel coordinates.

// The share of each hyperparameter in the variance of the figure of merit.
function importance() {
  const holder = element("importance-plot");
  if (!DATA.forest) return empty(holder, NO_FOREST);
  for (const { name, share } of DATA.forest.shares) {
    const row = holder.appendChild(document.createElement("div"));
    row.className = "bar";
    const parts = ["name", "track", "value"].map((kind) => {
      const part = row.appendChild(document.createElement("span"));
      part.className = kind;
      return part;
    });
    parts[0].textContent = parts[0].title = name;
    const fill = parts[1].appendChild(document.createElement("div"));
    fill.className = "fill";
    fill.style.width = `${100 * Math.min(1, share)}%`;
    parts[2].textContent = `${(100 * share).toFixed(1)} %`;
  }
}

// The figure of merit as a function of two hyperparameters, predicted by the random forest; dots are the best trials.
function contour() {
  const holder = element("contour-plot"), choice = element("contour-pair"), pairs = DATA.forest ? DATA.forest.pairs : [];
  choice.parentElement.hidden = !pairs.length;
  if (!pairs.length) return empty(holder, DATA.forest ? "the study has one hyperparameter" : NO_FOREST);
  pairs.forEach((pair, i) => choice.add(new Option(`${DATA.space[pair.x].name} × ${DATA.space[pair.y].name}`, i)));
  const figure = new Figure(holder, { height: 350, right: 88, draw: drawContour });
  const write = addNote(holder, "");
  const show = () => {
    figure.pair = pairs[choice.value];
    [figure.x, figure.y] = [DATA.space[figure.pair.x].axis, DATA.space[figure.pair.y].axis];
    figure.render();
    write(figure.pair.note);
  };
  choice.addEventListener("change", show);
  show();
}

function drawContour(f) {
  if (!f.pair) return;
  const c = f.context, { x, y, px, py, z, tones, n_rings } = f.pair;
  const floor = f.height - f.bottom, end = f.width - f.right, bar = makeScale(tones, floor, f.top);
  const tone = (fraction) => (DATA.study.sign > 0 ? fraction : 1 - fraction);
  const [ex, ey] = [edges(px, f.sx, f.left, end), edges(py, f.sy, floor, f.top)];
  z.forEach((row, j) => row.forEach((value, i) => {
    c.fillStyle = viridis(tone(bar.fraction(value)));
    c.fillRect(ex[i] - 0.3, ey[j + 1] - 0.3, ex[i + 1] - ex[i] + 0.6, ey[j] - ey[j + 1] + 0.6);
  }));
  const chosen = RANKED.filter((t) => DATA.values[x][t] !== null && DATA.values[y][t] !== null).slice(0, n_rings);
  const at = (t) => [f.sx.at(DATA.values[x][t]), f.sy.at(DATA.values[y][t])];
  for (const trial of chosen.slice().reverse()) {
    const [px_, py_] = at(trial);
    dot(c, COLOURS.ink, px_, py_, chosen.length > 150 ? 2.2 : 3.6);
    dot(c, "#fff", px_, py_, chosen.length > 150 ? 1.5 : 2.7);
    f.mark(px_, py_, trial);
  }
  if (chosen.length) star(c, ...at(chosen[0]), 9);
  c.restore(); // the colour bar is beside the axes
  c.save();
  for (let i = 0; i < 100; i++) {
    c.fillStyle = viridis(tone((i + 0.5) / 100));
    c.fillRect(end + 14, floor - ((i + 1) * (floor - f.top)) / 100 - 0.3, 12, (floor - f.top) / 100 + 0.6);
  }
  for (const tick of bar.ticks) write(c, cut(tick.text, 9), end + 31, bar.at(tick.value), "left", COLOURS.soft);
}

// The edges of cells around `places`, in pixels.
function edges(places, scale, from, to) {
  const middles = places.map(scale.at);
  return [from, ...middles.slice(1).map((m, i) => (m + middles[i]) / 2), to];
}

// The figure of merit against each hyperparameter, with the prediction of the random forest as a line.
function slices() {
  const holder = element("slices-plot"), order = DATA.forest ? DATA.forest.shares.map((s) => s.index) : DATA.space.map((_, i) => i);
  for (const index of order) {
    const dimension = DATA.space[index], line = DATA.forest && DATA.forest.curves[index];
    new Figure(holder, {
      height: 220, left: 66, x: dimension.axis, y: DATA.y,
      draw(f) {
        for (const trial of RANKED.slice().reverse()) {
          const value = DATA.values[index][trial];
          if (value === null) continue;
          point(f, shade(trial, 0.85), f.sx.at(value), T.figure_of_merit[trial], RANKED.length > 2000 ? 1.5 : 2.8, trial);
        }
        if (!line) return;
        const points = line.x.map((value, i) => [f.sx.at(value), f.sy.at(line.y[i])]);
        if (dimension.categories) points.forEach(([x, y]) => stroke(f.context, COLOURS.ink, [[x - 14, y], [x + 14, y]], 2.4));
        else stroke(f.context, COLOURS.ink, points, 1.6);
      },
    });
  }
  addNote(holder.parentElement, DATA.note);
}

// Each complete trial is a line through its values on parallel axes.
function parallel() {
  const holder = element("parallel-plot"), clear = element("parallel-clear");
  if (!RANKED.length) return empty(holder, "no complete trial yet");
  const gaps = (i) => RANKED.some((t) => DATA.values[i][t] === null);
  const placeOf = (i) => (DATA.space[i].categories ? (t) => (DATA.values[i][t] === null ? null : Math.round(DATA.values[i][t])) : (t) => DATA.values[i][t]);
  const columns = [...DATA.space.map((dimension, i) => ({ axis: dimension.axis, at: placeOf(i), hasGaps: gaps(i) })),
    { axis: DATA.y, at: (t) => T.figure_of_merit[t] }];
  const kept = columns.map(() => null); // the part of each axis that is kept, in fractions
  const height = (f, column, value) => {
    if (value === null || value < column.axis.low) return f.height - 18; // inactive, or below the range
    return value > column.axis.high ? f.top - 11 : column.scale.at(value);
  };
  const passes = (t) => columns.every((column, i) => {
    if (!kept[i]) return true;
    const value = column.at(t), fraction = value === null ? -1 : Math.min(1, Math.max(0, column.scale.fraction(value)));
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
    highlight(f, context, trial) { if (RANK.has(trial)) stroke(context, COLOURS.highlight, path(f, trial), 3); },
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
  addNote(holder, DATA.note);
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

// Dragging along an axis selects the trials with values in this part of it; a click on the axis ends this selection.
// The click that ends such a change selects no trial.
function brush(figure, columns, kept, clear) {
  let active = null, from = 0, hasChanged = false;
  const fraction = (y) => Math.min(1, Math.max(0, (figure.height - figure.bottom - y) / (figure.height - figure.bottom - figure.top)));
  const update = () => {
    clear.hidden = !kept.some(Boolean);
    figure.render();
  };
  const keep = (part) => {
    if (!part && !kept[active]) return;
    kept[active] = part;
    hasChanged = true;
    update();
  };
  figure.base.addEventListener("pointerdown", (event) => {
    const [x, y] = figure.pointer(event);
    hasChanged = false;
    active = columns.findIndex((_, i) => Math.abs(figure.column(i) - x) < 12);
    if (active < 0) return (active = null);
    from = fraction(y);
    figure.base.setPointerCapture(event.pointerId);
    keep(null);
  });
  figure.base.addEventListener("pointermove", (event) => {
    if (active === null) return;
    const to = fraction(figure.pointer(event)[1]);
    keep(Math.abs(to - from) < 0.01 ? null : [Math.min(from, to), Math.max(from, to)]);
  });
  figure.base.addEventListener("pointerup", () => (active = null));
  figure.base.addEventListener("click", (event) => hasChanged && event.stopImmediatePropagation(), { capture: true });
  clear.addEventListener("click", () => {
    kept.fill(null);
    update();
  });
}
