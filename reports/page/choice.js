// Which compressors the plots draw: the same in all of them, so that a colour is hidden everywhere at once.

const MOST_DRAWN = 20;
const hidden = new Set();
const choiceListeners = [];
let drawn = defaultLabels();
let chosenRows = null; // the runs to which the plots are limited; null: all

// The baseline and those of the highest accuracy, in the order of the tables.
function defaultLabels(candidates = [...LOOKS.keys()]) {
  if (candidates.length <= MOST_DRAWN) return candidates;
  const best = new Map();
  for (const cell of CELLS) {
    best.set(cell.label, Math.max(best.get(cell.label) ?? -1, mean(cell, "accuracy") ?? -1));
  }
  const rank = (label) => (label === DATA.baseline ? Infinity : (best.get(label) ?? -1));
  const first = new Set([...candidates].sort((a, b) => rank(b) - rank(a)).slice(0, MOST_DRAWN));
  return candidates.filter((label) => first.has(label));
}

function isShown(label) {
  return !hidden.has(label) && drawn.includes(label);
}

// Whether the plots draw a cell.
function isDrawn(cell) {
  return isShown(cell.label) && isChosen(cell);
}

function isChosen(cell) {
  return chosenRows === null || cell.runs.some((row) => chosenRows.has(row));
}

function tellChoice() {
  for (const listener of choiceListeners) listener();
}

function toggleLabel(label) {
  if (!hidden.delete(label)) hidden.add(label);
  tellChoice();
}

// Draw these runs only; null: all. The mean of a cell is over those of its runs that are chosen.
function drawRuns(rows) {
  chosenRows = rows && new Set(rows);
  for (const cell of CELLS) limitCell(cell, cell.runs.filter((row) => chosenRows === null || chosenRows.has(row)));
  const labels = new Set(CELLS.filter(isChosen).map((cell) => cell.label));
  drawn = defaultLabels([...LOOKS.keys()].filter((label) => labels.has(label)));
  hidden.clear();
  tellChoice();
}

// Buttons instead of plotly's legend, which no keyboard reaches.
function legend(host, entries, isOn, toggle) {
  const focused = host.contains(document.activeElement) ? document.activeElement.dataset.label : null;
  host.replaceChildren(
    ...entries.map(([label, swatch]) =>
      make(
        "button",
        { type: "button", "data-label": label, "aria-pressed": String(isOn(label)), click: () => toggle(label) },
        swatch,
        label,
      ),
    ),
  );
  if (focused !== null) [...host.children].find((child) => child.dataset.label === focused)?.focus();
}

function swatch(fill) {
  const element = make("span", { class: "swatch", "aria-hidden": "true" });
  element.style.background = fill;
  return element;
}

const GLYPHS = { o: "●", s: "■", "^": "▲", D: "◆", v: "▼", P: "✚", h: "⬢", p: "⬟", X: "✖", "*": "★", "<": "◀", ">": "▶" };

// The mark that a compressor has in the plots, for who cannot tell its colour from another's.
function glyph(label) {
  const element = make("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[LOOKS.get(label)?.marker] ?? "●");
  element.style.color = lineColour(label);
  return element;
}

function labelLegend(host) {
  legend(host, drawn.map((label) => [label, glyph(label)]), isShown, toggleLabel);
  if (LOOKS.size > drawn.length) {
    host.append(
      make(
        "span",
        { class: "note" },
        `${drawn.length} of ${LOOKS.size} compressors and settings are drawn; filter the runs to choose others.`,
      ),
    );
  }
  const lacking = CELLS.filter((cell) => isDrawn(cell) && cell.whole?.curve && !cell.curve).length;
  if (lacking) {
    const text = `${counted(lacking, "mean curve")} of chosen runs ${lacking === 1 ? "is" : "are"} not drawn: the page has no room for the curve of each run.`;
    host.append(make("span", { class: "note" }, text));
  }
}

// Black, the baseline's, is not seen on a dark page, and other dark colours hardly.
function lineColour(label) {
  const own = LOOKS.get(label)?.colour ?? colour("muted");
  if (own === "#000000") return colour("text");
  return isDark() ? seenOnDark(own) : own;
}

// The colour, mixed with white until it is light enough.
function seenOnDark(own) {
  const parts = [1, 3, 5].map((place) => parseInt(own.slice(place, place + 2), 16));
  const light = (0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]) / 255;
  const share = Math.max(0, (0.45 - light) / (1 - light));
  return `#${parts.map((part) => Math.round(part + (255 - part) * share).toString(16).padStart(2, "0")).join("")}`;
}
