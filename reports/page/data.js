// What the page knows, as reports/page writes it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const CELLS = DATA.cells;
const LOOKS = new Map(DATA.labels.map((look) => [look.name, look]));
const COUNT = DATA.runs.count;

// A row's text in a column that holds each text once.
function textOf(column, row) {
  return column.texts[column.rows[row]];
}

// The runs' columns by which they may be filtered: what tells them apart, but not every one from all others.
function filterKeys() {
  return DATA.runs.columns.filter(
    (column) => column.kind === "name" && column.texts.length > 1 && column.texts.length <= 200,
  );
}

const CELL_OF = new Map(CELLS.flatMap((cell) => cell.runs.map((row) => [row, cell])));

// What a cell is, besides its label, in words.
function settingOf(cell, withWorkers = true) {
  const texts = DATA.keys.map((key, place) => `${key}=${cell.keys[place] || "null"}`);
  if (withWorkers) texts.unshift(`${cell.workers || "?"} worker${cell.workers === "1" ? "" : "s"}`);
  return texts.join(", ");
}

// Cells by what they are set to. Those without a topology are in the groups of every topology, to be compared with.
function settings(cells, withWorkers = true) {
  const groups = new Map();
  const add = (name, cell) => {
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(cell);
  };
  const besides = (cell) => JSON.stringify([withWorkers && cell.workers, cell.keys.filter((_, place) => !OF_METHOD[place])]);
  const topologies = new Map();
  for (const cell of cells.filter((cell) => !cell.central)) {
    const [name, rest] = [settingOf(cell, withWorkers), besides(cell)];
    if (!topologies.has(rest)) topologies.set(rest, new Set());
    topologies.get(rest).add(name);
  }
  for (const cell of cells) {
    const names = cell.central ? topologies.get(besides(cell)) : null;
    for (const name of names ?? [settingOf(cell, withWorkers)]) add(name, cell);
  }
  return groups;
}

// Keys that say how workers agree.
const OF_METHOD = DATA.keys.map((key) => ["algorithm", "topology"].includes(key.split(".")[0]));

// The setting with the most cells.
function fullest(groups) {
  const names = [...groups.keys()];
  return names.reduce((best, name) => (groups.get(name).length > groups.get(best).length ? name : best), names[0]);
}

function mean(cell, measure) {
  return cell.values[measure]?.[0] ?? null;
}

const MEASURES = {
  accuracy: { name: "test accuracy", unit: "%", scale: 100, digits: 4 },
  best_accuracy: { name: "best test accuracy", unit: "%", scale: 100, digits: 4 },
  loss: { name: "test loss", unit: "", scale: 1, digits: 3 },
  iterations_per_second: { name: "throughput", unit: "it/s", scale: 1, digits: 3 },
  samples_per_second: { name: "throughput, all workers", unit: `${DATA.unit_of_samples}/s`, scale: 1, digits: 3 },
  time_s: { name: "training time", unit: "s", scale: 1, digits: 3 },
  sent_bytes: { name: "sent per step", unit: "B", scale: 1, digits: 3 },
  payload_bytes: { name: "message of one worker", unit: "B", scale: 1, digits: 3 },
  compression_ratio: { name: "compression ratio", unit: "x fp32", scale: 1, digits: 3 },
  compression_error: { name: "compression error", unit: "relative", scale: 1, digits: 3 },
  local_accuracy: { name: "test accuracy of the workers' own models", unit: "%", scale: 100, digits: 4 },
  local_accuracy_least: { name: "test accuracy of the worst worker's own model", unit: "%", scale: 100, digits: 4 },
  consensus_distance: { name: "consensus distance", unit: "l2", scale: 1, digits: 3 },
  peak_memory: { name: "peak memory of a worker", unit: "B", scale: 1, digits: 3 },
  step_s: { name: "time of a step", unit: "ms", scale: 1e3, digits: 3 },
};
for (const column of DATA.metrics) {
  MEASURES[column] = { name: column.replace("metric.", ""), unit: "", scale: 1, digits: 4 };
}

function measuresWithValues() {
  return Object.keys(MEASURES).filter((name) => CELLS.some((cell) => mean(cell, name) !== null));
}

// The least and the most of the values above 0; [Infinity, 0] without any.
function rangeOfPositive(values) {
  return values.reduce(([least, most], value) => (value > 0 ? [Math.min(least, value), Math.max(most, value)] : [least, most]), [Infinity, 0]);
}

const BYTE_UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
const MOST_STRETCHED = 50; // logarithm of a factor beyond all axes

// The measure in the unit that suits these values: bytes by their middle on a logarithmic axis, seconds by the longest.
function inUnits(measure, values) {
  const [least, most] = rangeOfPositive(values);
  if (measure.unit === "B" && most > 0) {
    const [size, unit] = BYTE_UNITS.find(([size]) => Math.sqrt(least * most) >= size) ?? [1, "B"];
    return { ...measure, unit, scale: 1 / size };
  }
  if (measure.unit !== "s" || most <= 600) return measure;
  return most > 7200 ? { ...measure, unit: "h", scale: 1 / 3600 } : { ...measure, unit: "min", scale: 1 / 60 };
}

function convert(value, { scale, offset = 0 }) {
  return value === null || value === undefined ? null : value * scale + offset;
}

// (mean, low, high) as it is shown. On a logarithmic axis, low and high are a factor around the mean, and never 0.
function shownBand(triple, measure, isLog = false) {
  const [middle, one, other] = triple.map((value) => convert(value, measure));
  if (triple.length < 3 || one === null) return [middle];
  const factor = Math.exp(Math.min(Math.abs(other - one) / 2 / middle, MOST_STRETCHED));
  return isLog && middle > 0 ? [middle, middle / factor, middle * factor] : [middle, Math.min(one, other), Math.max(one, other)];
}

const WIDE = 20; // largest over smallest value above which an axis is logarithmic

function isWide(values) {
  const [least, most] = rangeOfPositive(values);
  return most > WIDE * least;
}

// A logarithmic axis with plain numbers at its ticks: at 1, 2 and 5 of each decade if there are few, of many as powers.
function logAxis(least, most) {
  const decades = Math.log10(most / least);
  return { type: "log", ...(decades < 2 ? { dtick: "D2", tickformat: "~g" } : decades < 6 ? { dtick: 1, tickformat: "~g" } : { exponentformat: "power" }) };
}

function axisTitle({ name, unit }) {
  return unit ? `${name} [${unit}]` : name;
}
