// Figures of trials: history, Pareto front, learning curves, folds, and the timeline of the blocks.

// The figures of merit in the order in which trials ended, and the best one so far with its uncertainty.
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

// Two figures of merit against each other; trials of the Pareto front are green.
function front() {
  if (!DATA.front) return;
  element("front").hidden = element("front-link").hidden = false;
  const { names, values, pareto, directions } = DATA.front;
  const pairs = names.flatMap((_, x) => names.map((_, y) => [x, y])).filter(([x, y]) => x < y);
  const choice = element("front-pair");
  for (const [x, y] of pairs) choice.add(new Option(`${names[x]} and ${names[y]}`));
  const shown = values.map((_, i) => i).filter((i) => T.state[i] === "complete" && values[i]);
  const axis = (which) => {
    const all = shown.map((i) => values[i][which]), low = smallest(all), high = largest(all), margin = 0.05 * (high - low) || 1;
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

// A metric against the epoch: the best ten trials in colour, all others grey.
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
      for (const line of f.set.lines) if (line.trial === trial) stroke(context, COLOURS.highlight, f.path(line), 3);
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
    const longest = largest(figure.set.lines.map((line) => line.values.length));
    figure.x = { kind: "linear", low: 0, high: Math.max(1, (longest - 1) * figure.set.stride), title: "epoch" };
    figure.y = { kind: "linear", low: figure.set.limits[0], high: figure.set.limits[1], title: choice.value };
    figure.render();
  };
  choice.addEventListener("change", show);
  show();
}

// The figures of merit of the folds of the best trials, and their aggregate.
function folds() {
  const holder = element("folds-plot"), n = T.number.at(-1) > 999 ? 12 : 20;
  const chosen = RANKED.filter((t) => DATA.folds[t] && DATA.folds[t].length > 1).slice(0, n);
  if (!chosen.length) return empty(holder, RANKED.length ? "no complete trial has results of several folds" : "no complete trial yet");
  const all = chosen.flatMap((t) => DATA.folds[t]), low = smallest(all), high = largest(all), margin = 0.08 * (high - low || 1);
  new Figure(holder, {
    height: 330, x: { kind: "category", labels: chosen.map((t) => String(T.number[t])), title: "trial" },
    y: { kind: "linear", low: low - margin, high: high + margin, title: FIGURE_OF_MERIT },
    draw(f) {
      chosen.forEach((t, i) => {
        const x = f.sx.at(i), aggregate = f.sy.at(T.figure_of_merit[t]), ys = DATA.folds[t].map(f.sy.at);
        stroke(f.context, COLOURS.faint, [[x, smallest(ys)], [x, largest(ys)]], 2);
        ys.forEach((y) => dot(f.context, shade(t, 0.8), x, y, 3.6));
        stroke(f.context, COLOURS.ink, [[x - 8, aggregate], [x + 8, aggregate]], 2.4);
        [...ys, aggregate].forEach((y) => f.mark(x, y, t));
      });
    },
  });
}

// The trials of each block against time.
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
