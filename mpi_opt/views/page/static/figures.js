// The first figures. A trial is identified by its index in DATA.trials, which is sorted by number.

const DATA = JSON.parse(document.getElementById("data").textContent);
const T = DATA.trials;
const element = (id) => document.getElementById(id);
const FIGURE_OF_MERIT = DATA.study.figure_of_merit;
const RANKED = T.figure_of_merit.map((_, i) => i).filter((i) => T.state[i] === "complete" && T.figure_of_merit[i] !== null)
  .sort((a, b) => DATA.study.sign * (T.figure_of_merit[a] - T.figure_of_merit[b]) || a - b);
const RANK = new Map(RANKED.map((trial, rank) => [trial, rank]));
const shade = (trial, alpha) => viridis((0.92 * RANK.get(trial)) / Math.max(1, RANKED.length - 1), alpha);

function figureOfMeritAxis(all = false) {
  const known = T.figure_of_merit.filter((value) => value !== null);
  const [low, high] = all || !DATA.limits ? [Math.min(...known), Math.max(...known)] : DATA.limits;
  return { kind: "linear", low, high: high > low ? high : low + 1, title: FIGURE_OF_MERIT };
}

function axisOf(dimension) {
  if (dimension.categories) return { kind: "category", labels: dimension.categories, title: dimension.name };
  const margin = (dimension.width || 0) / 2;
  return { kind: dimension.log ? "log" : "linear", low: dimension.low - margin, high: dimension.high + margin, title: dimension.name,
    whole: dimension.whole };
}

// A small shift, fixed for each trial, so that points of a hyperparameter with few values do not overlap.
function beside(dimension, trial) {
  if (!dimension.width) return 0;
  return dimension.width * 0.5 * (((Math.sin(trial * 12.9898 + dimension.index) * 43758.5453) % 1 + 1) % 1 - 0.5);
}

function empty(holder, text) {
  const note = holder.appendChild(document.createElement("p"));
  note.className = "empty";
  note.textContent = text;
}

function key(holder, entries) {
  const list = holder.appendChild(document.createElement("div"));
  list.className = "key";
  for (const [text, colour] of entries) {
    const item = list.appendChild(document.createElement("span"));
    item.appendChild(document.createElement("i")).style.background = colour;
    item.append(text);
  }
}

function history() {
  const holder = element("history-plot"), order = DATA.ended;
  if (!order.length) return empty(holder, "no trial has ended yet");
  const steps = [];
  order.forEach((trial, i) => {
    const last = steps.at(-1);
    if (RANK.has(trial) && (!last || RANK.get(trial) < RANK.get(last.trial))) steps.push({ i, trial });
  });
  const figure = new Figure(holder, {
    height: 340, y: figureOfMeritAxis(), x: { kind: "linear", low: -0.5, high: Math.max(order.length - 0.5, 1), title: "trials in the order of ending" },
    draw(f) {
      const c = f.context, radius = order.length > 2000 ? 1.6 : order.length > 400 ? 2.4 : 3.6;
      const end = f.sx.at(order.length - 1);
      steps.forEach(({ i, trial }, k) => {
        const until = k + 1 < steps.length ? f.sx.at(steps[k + 1].i) : end, uncertainty = T.uncertainty[trial] || 0;
        const [top, bottom] = [f.sy.at(T.figure_of_merit[trial] + uncertainty), f.sy.at(T.figure_of_merit[trial] - uncertainty)];
        c.fillStyle = "rgba(11,138,92,.16)";
        c.fillRect(f.sx.at(i), top, until - f.sx.at(i), bottom - top);
      });
      order.forEach((trial, i) => {
        const x = f.sx.at(i);
        if (T.figure_of_merit[trial] === null) {
          stroke(c, COLOURS.failed, [[x, f.height - f.bottom - 1], [x, f.height - f.bottom - 8]], 1.4);
          return f.mark(x, f.height - f.bottom - 4, trial);
        }
        const y = Math.min(Math.max(f.sy.at(T.figure_of_merit[trial]), f.top - 3), f.height - f.bottom + 3); // outliers are at the edge
        dot(c, T.state[trial] === "complete" ? "rgba(47,111,222,.7)" : "rgba(154,163,178,.8)", x, y, radius);
        f.mark(x, y, trial);
      });
      const line = [];
      steps.forEach(({ i, trial }) => {
        if (line.length) line.push([f.sx.at(i), line.at(-1)[1]]);
        line.push([f.sx.at(i), f.sy.at(T.figure_of_merit[trial])]);
      });
      if (line.length) stroke(c, COLOURS.best, [...line, [end, line.at(-1)[1]]], 2.2);
    },
  });
  key(holder, [["complete", COLOURS.complete], ["pruned", COLOURS.pruned], ["failed", COLOURS.failed], ["best so far", COLOURS.best]]);
  element("history-all").addEventListener("change", (event) => {
    figure.y = figureOfMeritAxis(event.target.checked);
    figure.render();
  });
}

function importance() {
  const holder = element("importance-plot");
  if (!DATA.forest) return empty(holder, "too few complete trials to say");
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

function contour() {
  const holder = element("contour-plot"), choice = element("contour-pair"), pairs = DATA.forest ? DATA.forest.pairs : [];
  choice.parentElement.hidden = !pairs.length;
  if (!pairs.length) return empty(holder, "too few complete trials, or a single hyperparameter");
  pairs.forEach((pair, i) => choice.add(new Option(`${DATA.space[pair.x].name} × ${DATA.space[pair.y].name}`, i)));
  const figure = new Figure(holder, { height: 350, right: 78, draw: drawContour });
  const show = () => {
    figure.pair = pairs[choice.value];
    [figure.x, figure.y] = [axisOf(DATA.space[figure.pair.x]), axisOf(DATA.space[figure.pair.y])];
    figure.render();
  };
  choice.addEventListener("change", show);
  show();
}

function edges(places, scale, from, to) {
  const middles = places.map(scale.at);
  return [from, ...middles.slice(1).map((m, i) => (m + middles[i]) / 2), to];
}

function drawContour(f) {
  if (!f.pair) return;
  const c = f.context, { x, y, px, py, z } = f.pair, values = z.flat();
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const tone = (value) => (DATA.study.sign > 0 ? value - low : high - value) / (high - low || 1);
  const floor = f.height - f.bottom, end = f.width - f.right;
  const [ex, ey] = [edges(px, f.sx, f.left, end), edges(py, f.sy, floor, f.top)];
  z.forEach((row, j) => row.forEach((value, i) => {
    c.fillStyle = viridis(tone(value));
    c.fillRect(ex[i] - 0.3, ey[j + 1] - 0.3, ex[i + 1] - ex[i] + 0.6, ey[j] - ey[j + 1] + 0.6);
  }));
  const chosen = RANKED.slice(0, 400).filter((t) => DATA.values[x][t] !== null && DATA.values[y][t] !== null);
  const at = (t) => [f.sx.at(DATA.values[x][t] + beside(DATA.space[x], t)), f.sy.at(DATA.values[y][t] + beside(DATA.space[y], t))];
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
    c.fillStyle = viridis(tone(low + ((i + 0.5) / 100) * (high - low)));
    c.fillRect(end + 14, floor - ((i + 1) * (floor - f.top)) / 100 - 0.3, 12, (floor - f.top) / 100 + 0.6);
  }
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    write(c, format(low + part * (high - low)), end + 31, floor - part * (floor - f.top), "left", COLOURS.soft);
  }
}

function slices() {
  const holder = element("slices-plot"), order = DATA.forest ? DATA.forest.shares.map((s) => s.index) : DATA.space.map((_, i) => i);
  for (const index of order) {
    const dimension = DATA.space[index], line = DATA.forest && DATA.forest.curves[index];
    new Figure(holder, {
      height: 220, left: 58, x: axisOf(dimension), y: figureOfMeritAxis(),
      draw(f) {
        for (const trial of RANKED.slice().reverse()) {
          const value = DATA.values[index][trial];
          if (value === null) continue;
          const [x, y] = [f.sx.at(value + beside(dimension, trial)), f.sy.at(T.figure_of_merit[trial])];
          dot(f.context, shade(trial, 0.85), x, y, RANKED.length > 2000 ? 1.5 : 2.8);
          f.mark(x, y, trial);
        }
        if (!line) return;
        const points = line.x.map((value, i) => [f.sx.at(value), f.sy.at(line.y[i])]);
        if (dimension.categories) points.forEach(([x, y]) => stroke(f.context, COLOURS.ink, [[x - 14, y], [x + 14, y]], 2.4));
        else stroke(f.context, COLOURS.ink, points, 1.6);
      },
    });
  }
}
