// A trial under the pointer is highlighted in all figures. Text from the study is never parsed as HTML.

const page = {
  figures: [],
  trial: null,
  selected: null,

  point(trial, event) {
    if (this.selected !== null) return;
    this.show(trial, event);
  },

  select(trial, event) {
    this.selected = trial === this.selected ? null : trial;
    element("tip").classList.toggle("is-selected", this.selected !== null);
    this.show(trial, event);
  },

  show(trial, event) {
    if (trial !== this.trial) {
      this.trial = trial;
      for (const figure of this.figures) figure.renderOver(trial);
      if (trial !== null) describe(trial);
    }
    const tip = element("tip");
    tip.hidden = trial === null;
    if (trial === null) return;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, event.clientX + 18 + width > innerWidth ? event.clientX - width - 18 : event.clientX + 18)}px`;
    tip.style.top = `${Math.max(8, Math.min(event.clientY + 14, innerHeight - height - 10))}px`;
  },
};

function describe(trial) {
  const tip = element("tip");
  tip.replaceChildren();
  const rank = RANK.has(trial) ? ` · rank ${RANK.get(trial) + 1} of ${RANKED.length}` : "";
  tip.appendChild(document.createElement("b")).textContent = `Trial ${T.number[trial]} · ${T.state[trial]}${rank}`;
  const values = DATA.front ? DATA.front.values[trial] : null;
  const figuresOfMerit = DATA.front
    ? DATA.front.names.map((name, i) => [name, values ? format(values[i], 6) : null])
    : [[FIGURE_OF_MERIT, figureOfMerit(trial)]];
  const rows = [...figuresOfMerit, ...DATA.space.map((d, i) => [d.name, shown(d, DATA.values[i][trial], trial)]), ["duration", seconds(T.duration[trial])]];
  if (T.attempts[trial] > 1) rows.push(["attempts", T.attempts[trial]]);
  if (T.budget[trial] !== undefined) rows.push(["trained for", T.budget[trial]]);
  if (T.note[trial] !== undefined) rows.push(["note", T.note[trial]]);
  if (T.error[trial] !== undefined) rows.push(["error", T.error[trial]]);
  const table = tip.appendChild(document.createElement("table"));
  for (const [name, value] of rows) {
    if (value === null) continue;
    const row = table.insertRow();
    row.insertCell().textContent = name;
    row.insertCell().textContent = value;
  }
}

function figureOfMerit(trial) {
  if (T.figure_of_merit[trial] === null) return "none";
  return format(T.figure_of_merit[trial], 6) + (T.uncertainty[trial] === null ? "" : ` ± ${format(T.uncertainty[trial])}`);
}

function shown(dimension, value, trial) {
  if (value === null) return null;
  if (dimension.texts) return dimension.texts[trial];
  if (dimension.whole) return String(Math.round(value));
  return dimension.categories ? dimension.categories[Math.round(value)] : format(value);
}

for (const draw of [history, front, importance, contour, parallel, slices, curves, folds, blocks]) draw();
// the neighbour of a figure that was left out has more room now
if (!element("without-data").hidden) page.figures.forEach((figure) => figure.render());

for (const row of document.querySelectorAll("tr[data-trial]")) {
  const trial = Number(row.dataset.trial);
  row.addEventListener("pointermove", (event) => page.point(trial, event));
  row.addEventListener("pointerleave", (event) => page.point(null, event));
  row.addEventListener("click", (event) => page.select(trial, event));
}
document.addEventListener("keydown", (event) => event.key === "Escape" && page.selected !== null && page.select(page.selected, event));

let resizeTimer = 0;
addEventListener("resize", () => {
  clearTimeout(resizeTimer);
  resizeTimer = setTimeout(() => page.figures.forEach((figure) => figure.render()), 120);
});
document.documentElement.dataset.drawn = page.figures.length;
