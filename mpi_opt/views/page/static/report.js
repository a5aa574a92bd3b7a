// What is pointed at is shown in all pictures at once. Everything from the study enters the page as text, never as HTML.

const page = {
  figures: [],
  trial: null,
  held: null,

  point(trial, event) {
    if (this.held !== null) return;
    this.show(trial, event);
  },

  hold(trial, event) {
    this.held = trial === this.held ? null : trial;
    place("tip").classList.toggle("is-held", this.held !== null);
    this.show(trial, event);
  },

  show(trial, event) {
    if (trial !== this.trial) {
      this.trial = trial;
      for (const figure of this.figures) figure.renderOver(trial);
      if (trial !== null) describe(trial);
    }
    const tip = place("tip");
    tip.hidden = trial === null;
    if (trial === null) return;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, event.clientX + 18 + width > innerWidth ? event.clientX - width - 18 : event.clientX + 18)}px`;
    tip.style.top = `${Math.max(8, Math.min(event.clientY + 14, innerHeight - height - 10))}px`;
  },
};

function describe(trial) {
  const tip = place("tip");
  tip.replaceChildren();
  const rank = RANK.has(trial) ? ` · ${RANK.get(trial) + 1}. of ${RANKED.length}` : "";
  tip.appendChild(document.createElement("b")).textContent = `Trial ${T.number[trial]} · ${T.state[trial]}${rank}`;
  const merit = T.merit[trial] === null ? "none" : format(T.merit[trial]) + (T.spread[trial] === null ? "" : ` ± ${format(T.spread[trial])}`);
  const merits = DATA.front ? DATA.front.names.map((name, i) => [name, DATA.front.values[trial] ? format(DATA.front.values[trial][i]) : null]) : [[MERIT, merit]];
  const rows = [...merits, ...DATA.space.map((d, i) => [d.name, shown(d, DATA.values[i][trial])]), ["duration", seconds(T.duration[trial])]];
  if (T.attempts[trial] > 1) rows.push(["attempts", T.attempts[trial]]);
  if (T.error[trial] !== undefined) rows.push(["error", T.error[trial]]);
  const table = tip.appendChild(document.createElement("table"));
  for (const [name, value] of rows) {
    if (value === null) continue;
    const row = table.insertRow();
    row.insertCell().textContent = name;
    row.insertCell().textContent = value;
  }
}

function shown(dimension, value) {
  if (value === null) return null;
  return dimension.categories ? dimension.categories[value] : format(value);
}

for (const draw of [history, front, importance, contour, parallel, slices, curves, folds, blocks]) draw();

for (const row of document.querySelectorAll("tr[data-trial]")) {
  const trial = Number(row.dataset.trial);
  row.addEventListener("pointermove", (event) => page.point(trial, event));
  row.addEventListener("pointerleave", (event) => page.point(null, event));
  row.addEventListener("click", (event) => page.hold(trial, event));
}
document.addEventListener("keydown", (event) => event.key === "Escape" && page.held !== null && page.hold(page.held, event));

let settling = 0;
addEventListener("resize", () => {
  clearTimeout(settling);
  settling = setTimeout(() => page.figures.forEach((figure) => figure.render()), 120);
});
document.documentElement.dataset.drawn = page.figures.length;
