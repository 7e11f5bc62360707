// Curves over training: a line per compressor, its band over seeds, in one setting of everything else.

const CURVE_Y = {
  test_accuracy: { ...MEASURES.accuracy, name: "test accuracy" },
  test_loss: { ...MEASURES.loss, name: "test loss" },
  train_loss: { ...MEASURES.loss, name: "training loss" },
  compression_error: MEASURES.compression_error,
  local_test_accuracy: MEASURES.local_accuracy,
  consensus_distance: MEASURES.consensus_distance,
  memory_norm: { name: "norm of the memory", unit: "l2", scale: 1, digits: 3 },
  ...Object.fromEntries(DATA.metrics.map((column) => [column, MEASURES[column]])),
};
const CURVE_X = {
  epoch: { name: "epoch", unit: "" },
  step: { name: "step", unit: "" },
  time_s: { name: "training time", unit: "s" },
  sent_bytes: { name: "sent by one worker", unit: "B" },
};

// `from` is where a cell keeps them: `curve` or `profile`.
function curvesPlot(host, title, from, xs, ys) {
  const available = ys.filter((name) => CELLS.some((cell) => cell[from]?.[name]));
  const groups = settings(CELLS.filter((cell) => cell[from]));
  if (!available.length) return;
  let [x, y, setting] = [xs[0], available[0], fullest(groups)];
  const controls = [
    available.length > 1 && ["Value", available.map((name) => [name, CURVE_Y[name].name]), y, (chosen) => (y = chosen)],
    xs.length > 1 && ["Against", xs.map((name) => [name, CURVE_X[name].name]), x, (chosen) => (x = chosen)],
    groups.size > 1 && ["Setting", [...groups.keys()], setting, (chosen) => (setting = chosen)],
  ];
  plot(host, title, controls, () => {
    const shown = (groups.get(setting) ?? []).filter((cell) => isDrawn(cell) && cell[from]?.[y]);
    const traces = shown.flatMap((cell) => cellCurve(cell, from, x, y));
    const layout = {
      xaxis: { title: { text: axisTitle(CURVE_X[x]) }, exponentformat: "SI", rangemode: "tozero" },
      yaxis: { title: { text: axisTitle(CURVE_Y[y]) }, ...scaleOf(y, shown.flatMap((cell) => cell[from][y][0])) },
    };
    if (shown.some((cell) => cell[from][y].length > 1)) layout.annotations = [said("band: 95 % interval over seeds")];
    const ends = shown.map((cell) => `${cell.label}: ${number(lastOf(cell[from][y][0]) * CURVE_Y[y].scale)}`);
    const alt = `${CURVE_Y[y].name} against ${CURVE_X[x].name}, ${setting}; at the end: ${ends.join(", ")}.`;
    return { traces, layout, alt: shown.length ? alt : "" };
  });
}

// A distance falls by decades; a logarithmic axis leaves out what is 0, as on a complete graph.
function scaleOf(y, values) {
  const positive = values.filter((value) => value > 0);
  const range = Math.max(...positive) / Math.min(...positive);
  if (y !== "consensus_distance" || !(range > 20)) return {};
  return range < 1000 ? { type: "log", dtick: "D2", tickformat: "~g" } : { type: "log", dtick: 1, exponentformat: "power" };
}

function lastOf(values) {
  return values.findLast((value) => value !== null) ?? NaN;
}

function cellCurve(cell, from, x, y, ink) {
  const { scale } = CURVE_Y[y];
  const curve = cell[from];
  const parts = curve[y].map((part) => part.map((value) => (value === null ? null : value * scale)));
  const note = cell.done ? "" : ", not done";
  const of = curve.n > 1 ? `, mean of ${curve.n}` : "";
  const text = curve[x].map((at, place) => {
    const triple = curve[y].map((part) => part[place]);
    const where = `${CURVE_X[x].name} ${number(at)} ${CURVE_X[x].unit}`.trim();
    return `${plain(cell.label)}${note}<br>${where}: ${triple[0] === null ? "?" : withInterval(triple, CURVE_Y[y])}${of}`;
  });
  return lineTraces(curve[x], parts, cell.label, text, cell.done ? "solid" : "dot", ink);
}
