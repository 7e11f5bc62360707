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
  samples_per_second: { name: "throughput, all workers", unit: "samples/s", scale: 1, digits: 3 },
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

function axisTitle({ name, unit }) {
  return unit ? `${name} [${unit}]` : name;
}
