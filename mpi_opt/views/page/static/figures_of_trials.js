// Figures of trials: history, Pareto front, learning curves, folds, and the timeline of the blocks.

// The figures of merit in the order in which trials ended, and the best one so far with its uncertainty.
function history() {
  const holder = element("history-plot"), H = DATA.history, order = H.ended;
  const place = (i) => (H.places ? H.places[i] : i); // of very many trials, some are not drawn
  if (!order.length) return empty(holder, "no trial has ended yet");
  const figure = new Figure(holder, {
    height: 340, x: H.x, y: H.y,
    draw(f) {
      const c = f.context, radius = order.length > 2000 ? 1.6 : order.length > 400 ? 2.4 : 3.6;
      const end = f.sx.at(place(order.length - 1)), floor = f.height - f.bottom;
      H.best.forEach(([i, trial], k) => {
        const until = k + 1 < H.best.length ? f.sx.at(H.best[k + 1][0]) : end, uncertainty = T.uncertainty[trial] || 0;
        const [top, bottom] = [f.sy.at(T.figure_of_merit[trial] + uncertainty), f.sy.at(T.figure_of_merit[trial] - uncertainty)];
        c.fillStyle = "rgba(11,138,92,.16)";
        c.fillRect(f.sx.at(i), top, until - f.sx.at(i), bottom - top);
      });
      order.forEach((trial, i) => {
        const x = f.sx.at(place(i)), colour = COLOURS[T.state[trial]];
        if (T.figure_of_merit[trial] !== null) return point(f, `${colour}c0`, x, T.figure_of_merit[trial], radius, trial);
        stroke(c, colour, [[x, floor - 1], [x, floor - 8]], 1.4);
        f.mark(x, floor - 4, trial);
      });
      const line = [];
      H.best.forEach(([i, trial]) => {
        if (line.length) line.push([f.sx.at(i), line.at(-1)[1]]);
        line.push([f.sx.at(i), f.sy.at(T.figure_of_merit[trial])]);
      });
      if (line.length) stroke(c, COLOURS.best, [...line, [end, line.at(-1)[1]]], 2.2);
    },
  });
  const write = addNote(holder, H.note);
  key(holder, [["complete", COLOURS.complete], ["pruned", COLOURS.pruned], ["failed", COLOURS.failed], ["best so far", COLOURS.best]]);
  element("history-all").addEventListener("change", (event) => {
    figure.y = event.target.checked ? H.whole : H.y;
    write(event.target.checked ? H.whole_note : H.note);
    figure.render();
  });
}

// Two figures of merit against each other; trials of the Pareto front are green.
function front() {
  if (!DATA.front) return;
  element("front").hidden = element("front-link").hidden = false;
  const { names, values, pareto, axes, pairs } = DATA.front;
  const choice = element("front-pair");
  for (const { x, y } of pairs) choice.add(new Option(`${names[x]} and ${names[y]}`));
  const shown = values.map((_, i) => i).filter((i) => T.state[i] === "complete" && values[i]);
  if (!shown.length) return empty(element("front-plot"), "no trial is complete yet");
  shown.sort((a, b) => pareto[a] - pareto[b]);
  const figure = new Figure(element("front-plot"), {
    height: 340,
    draw(f) {
      const { x, y } = pairs[choice.selectedIndex];
      for (const i of shown) {
        point(f, pareto[i] ? "rgb(11,138,92)" : "rgba(47,111,222,.45)", f.sx.at(values[i][x]), values[i][y], pareto[i] ? 4.5 : 3, i);
      }
    },
  });
  const write = addNote(element("front-plot"), "");
  function show() {
    const { x, y, note } = pairs[choice.selectedIndex];
    Object.assign(figure, { x: axes[x], y: axes[y] }).render();
    write(note);
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
    height: 330, set: { lines: [] },
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
  const write = addNote(holder, "");
  const show = () => {
    figure.set = DATA.curves[choice.value];
    Object.assign(figure, { x: figure.set.x, y: figure.set.y }).render();
    write(figure.set.note);
  };
  choice.addEventListener("change", show);
  show();
}

// The figures of merit of the folds of the best trials, and their aggregate.
function folds() {
  const holder = element("folds-plot"), { trials, values, x, y, note } = DATA.folds;
  if (!trials.length) return empty(holder, RANKED.length ? "no complete trial has results of several folds" : "no complete trial yet");
  new Figure(holder, {
    height: 330, x, y,
    draw(f) {
      trials.forEach((t, i) => {
        const x = f.sx.at(i), aggregate = f.sy.at(T.figure_of_merit[t]), ys = values[i].map(f.sy.at);
        stroke(f.context, COLOURS.faint, [[x, smallest(ys)], [x, largest(ys)]], 2);
        values[i].forEach((value) => point(f, shade(t, 0.8), x, value, 3.6, t));
        stroke(f.context, COLOURS.ink, [[x - 8, aggregate], [x + 8, aggregate]], 2.4);
        f.mark(x, aggregate, t);
      });
    },
  });
  addNote(holder, note);
}

// The trials of each block against time.
function blocks() {
  const holder = element("blocks-plot"), B = DATA.blocks;
  if (!B) return empty(holder, "no trial has begun yet");
  const row = B.names.length > 40 ? 9 : B.names.length > 12 ? 16 : 26;
  new Figure(holder, {
    height: 54 + row * B.names.length, x: B.x, y: { kind: "linear", low: B.names.length, high: 0, title: "block", ticks: [] },
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
      f.bars = B.bars.map(([block, trial, begin, end, outcome, strip = 0, strips = 1, share = 1]) => {
        const x = f.sx.at(begin / B.unit), height = (row - 2) * share / strips; // trials of a workload system overlap
        return { trial, outcome, x, y: f.sy.at(block) + 1 + strip * height, height, width: Math.max(0.6, f.sx.at(end / B.unit) - x) };
      });
      for (const bar of f.bars) {
        f.context.fillStyle = COLOURS[bar.outcome];
        f.context.fillRect(bar.x, bar.y, bar.width, bar.height);
        if (bar.width > 4) stroke(f.context, "rgba(255,255,255,.85)", [[bar.x, bar.y], [bar.x, bar.y + bar.height]]);
        if (bar.width > 24 && bar.height > 18) write(f.context, String(T.number[bar.trial]), bar.x + bar.width / 2, bar.y + bar.height / 2, "center", "#fff");
      }
    },
    highlight(f, context, trial) {
      context.strokeStyle = COLOURS.ink;
      context.lineWidth = 2.5;
      for (const bar of f.bars) if (bar.trial === trial) context.strokeRect(bar.x, bar.y, bar.width, bar.height);
    },
    nearest(x, y) {
      const bar = this.bars.findLast((b) => x >= b.x - 1 && x <= b.x + b.width + 1 && y >= b.y && y < b.y + b.height + 2);
      return bar ? bar.trial : null;
    },
  });
  const outcomes = ["complete", "moved", "pruned", "failed", "lost", "killed", "running"];
  const present = outcomes.filter((o) => B.bars.some((bar) => bar[4] === o));
  addNote(holder, B.note);
  key(holder, present.map((outcome) => [outcome, COLOURS[outcome]]));
}
