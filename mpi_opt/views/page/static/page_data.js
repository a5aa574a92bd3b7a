// The data of the page, and the functions that all figures use. A trial is identified by its index in DATA.trials, sorted by number; of very many trials, some are left out.

const DATA = JSON.parse(document.getElementById("data").textContent);
const T = DATA.trials; // columns: T.state[trial], T.figure_of_merit[trial], …
const element = (id) => document.getElementById(id);
const FIGURE_OF_MERIT = DATA.study.figure_of_merit;
// The complete trials, best first.
const RANKED = T.figure_of_merit.map((_, i) => i).filter((i) => T.state[i] === "complete" && T.figure_of_merit[i] !== null)
  .sort((a, b) => DATA.study.sign * (T.figure_of_merit[a] - T.figure_of_merit[b]) || a - b);
const RANK = new Map(RANKED.map((trial, rank) => [trial, rank]));
const shade = (trial, alpha) => viridis((0.92 * RANK.get(trial)) / Math.max(1, RANKED.length - 1), alpha);

// Why there is no random forest, if there is none.
const NO_FOREST = RANKED.length < DATA.min_trials ? `fewer than ${DATA.min_trials} complete trials` : "all figures of merit are equal";

// A line below a figure that says what the figure does not show; a function that changes it.
function addNote(holder, text) {
  const note = holder.appendChild(document.createElement("p"));
  note.className = "hint outside";
  const write = (now) => {
    note.textContent = now;
    note.hidden = !now;
  };
  write(text);
  return write;
}

// A figure without data: its card is hidden, unless it has a table, and a line at the end of the page names the reason.
function empty(holder, text) {
  const note = holder.appendChild(document.createElement("p"));
  note.className = "empty";
  note.textContent = text;
  const card = holder.closest(".card");
  if (card.querySelector("table")) return;
  card.hidden = true;
  const pair = card.closest(".two");
  if (pair) pair.hidden = [...pair.children].every((one) => one.hidden);
  const section = pair || card, link = document.querySelector(`nav a[href="#${section.id}"]`);
  if (link) link.hidden = section.hidden;
  element("without-data").hidden = false;
  element("without-data").append(` ${card.querySelector("h2").textContent} (${text}).`);
}

// A legend: pairs of text and colour.
function key(holder, entries) {
  const list = holder.appendChild(document.createElement("div"));
  list.className = "key";
  for (const [text, colour] of entries) {
    const item = list.appendChild(document.createElement("span"));
    item.appendChild(document.createElement("i")).style.background = colour;
    item.append(text);
  }
}
