// Curves over training: a line per compressor, its band over seeds, in one setting of everything else.

// Where accuracies are high, the error tells them apart, on a logarithmic axis.
const asError = (measure, name) => (DATA.shows_error ? { ...measure, name, scale: -100, offset: 100, digits: 3, most: 100 } : measure);
const CURVE_Y = {
  test_accuracy: asError(MEASURES.accuracy, "test error"),
  test_loss: { ...MEASURES.loss, name: "test loss", floor: DATA.least_loss },
  train_loss: { ...MEASURES.loss, name: "training loss" },
  compression_error: MEASURES.compression_error,
  local_test_accuracy: asError(MEASURES.local_accuracy, "test error of the workers' own models"),
  consensus_distance: MEASURES.consensus_distance,
  memory_norm: { name: "norm of the memory", unit: "l2", scale: 1, digits: 3 },
  ...Object.fromEntries(DATA.metrics.map((column) => [column, MEASURES[column]])),
};
const CURVE_X = {
  epoch: { name: "epoch", unit: "", scale: 1 },
  step: { name: "step", unit: "", scale: 1 },
  tokens: { name: "tokens", unit: "", scale: 1 },
  time_s: { name: "training time", unit: "s", scale: 1 },
  sent_bytes: { name: "sent by one worker", unit: "B", scale: 1 },
};

const SCALE_X = { time_s: { rangemode: "tozero" }, sent_bytes: { rangemode: "tozero" } };

// `from` is where a cell keeps them: `curve` or `profile`.
function curvesPlot(host, title, from, xs, ys) {
  const available = ys.filter((name) => CELLS.some((cell) => cell[from]?.[name]));
  const groups = settings(CELLS.filter((cell) => cell[from]));
  if (!available.length) return;
  let [x, y, setting] = [xs.includes(DATA.progress) ? DATA.progress : xs[0], available[0], fullest(groups)];
  const controls = [
    available.length > 1 && ["Value", available.map((name) => [name, CURVE_Y[name].name]), y, (chosen) => (y = chosen)],
    xs.length > 1 && ["Against", xs.map((name) => [name, CURVE_X[name].name]), x, (chosen) => (x = chosen)],
    groups.size > 1 && ["Setting", [...groups.keys()], setting, (chosen) => (setting = chosen)],
  ];
  plot(host, title, controls, () => {
    const cells = (groups.get(setting) ?? []).filter((cell) => isDrawn(cell) && cell[from]?.[y]);
    const curves = cells.map((cell) => [cell[from][x], cell[from][y][0]]);
    const axes = curveAxes(x, y, curves);
    const hasBands = cells.length <= MOST_BANDS && cells.some((cell) => cell[from][y].length > 1);
    const traces = cells.flatMap((cell) => cellCurve(cell, from, x, y, axes, hasBands));
    traces.unshift(...floorTraces(curves, y, axes));
    const layout = { xaxis: axes.x.layout, yaxis: { ...axes.y.layout, ...axes.rangeOf(traces) } };
    const last = cells.map((cell) => [cell.label, convert(lastOf(cell[from][y][0]), CURVE_Y[y])]);
    const zeros = axes.y.isLog ? last.filter(([, value]) => value <= 0).map(([label]) => plain(label, 24)) : [];
    const band = hasBands ? `band: 95 % interval${axes.y.isLog ? " (on the log scale)" : ""}` : "";
    const dashes = CURVE_Y[y].floor ? `dashed: ${LEAST} (${number(CURVE_Y[y].floor)})` : "";
    const notes = [dashes, band, zeros.length ? `at 0 in the end: ${zeros.join(", ")}` : ""].filter(Boolean).join("; ");
    if (notes) layout.annotations = [said(notes)];
    const ends = last.map(([label, value]) => `${label}: ${number(value)}`);
    const alt = `${CURVE_Y[y].name} against ${CURVE_X[x].name}, ${setting}; at the end: ${ends.join(", ")}.`;
    return { traces, layout, alt: cells.length ? alt : "" };
  });
}

const MOST_BANDS = 6; // of more curves, bands would hide each other; pointing at a curve tells its interval
const LINEAR = ["compression_error", "memory_norm"]; // as in the pictures; so are accuracies
const BESIDE = 3; // how far a logarithmic axis reaches beyond its lines for their bands, as a factor

// The measures of both axes in units that suit the curves, pairs of x and y, and their part of plotly's layout.
function curveAxes(x, y, curves) {
  const measureX = inUnits(CURVE_X[x], curves.flatMap(([xs]) => xs));
  const ys = curves.flatMap(([, values]) => values.map((value) => convert(value, CURVE_Y[y]))).filter((value) => value > 0);
  const isError = CURVE_Y[y].most === 100;
  const isAccuracy = y.endsWith("accuracy") && !isError;
  const isLog = ys.length > 0 && (isError || (!isAccuracy && !LINEAR.includes(y) && isWide(ys)));
  const xs = curves.flatMap(([each]) => each.map((at) => convert(at, measureX)));
  const layoutX = x === "sent_bytes" && isWide(xs) ? logAxis(...rangeOfPositive(xs)) : SCALE_X[x] ?? (rangeOfPositive(xs)[1] <= 10 ? { dtick: rangeOfPositive(xs)[1] <= 5 ? 1 : 2 } : {}); // whole epochs and steps
  const [least, most] = rangeOfPositive(ys);
  // The bands of few seeds are wide: they may leave a logarithmic axis.
  const rangeOf = (traces) => {
    if (!isLog) return LINEAR.includes(y) ? { rangemode: "nonnegative" } : {};
    const [low, high] = rangeOfPositive(traces.flatMap((trace) => trace.y));
    const ends = [Math.max(least / BESIDE, low / 1.2), Math.min(most * BESIDE, high * 1.2, (CURVE_Y[y].most ?? Infinity) * 1.2)];
    return { ...logAxis(...ends), range: ends.map(Math.log10) };
  };
  const title = (measure) => ({ title: { text: axisTitle(measure) } });
  return {
    x: { measure: measureX, layout: { ...title(measureX), ...layoutX } },
    y: { isLog, layout: title(CURVE_Y[y]) },
    rangeOf,
  };
}

const LEAST = "least of any model";

// The least value that a model can have, where it is known: a dashed line along the curves, pairs of x and y.
function floorTraces(curves, y, axes) {
  const { floor } = CURVE_Y[y];
  const xs = curves.flatMap(([each]) => each).filter((at) => at !== null).map((at) => convert(at, axes.x.measure));
  if (!floor || !xs.length) return [];
  const look = { type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: colour("muted"), width: 1, dash: "dash" } };
  return [{ ...look, x: [Math.min(...xs), Math.max(...xs)], y: [floor, floor], name: LEAST }];
}

function lastOf(values) {
  return values.findLast((value) => value !== null) ?? NaN;
}

function cellCurve(cell, from, x, y, axes, hasBand = true, ink = lineColour(cell.label)) {
  const curve = cell[from];
  const measure = axes.x.measure;
  const bands = curve[x].map((_, place) => shownBand(curve[y].map((part) => part[place]), CURVE_Y[y], axes.y.isLog));
  const parts = (hasBand ? curve[y] : [curve[y][0]]).map((_, side) => bands.map((band) => band[side] ?? null));
  const note = cell.done ? "" : ", not done";
  const of = curve.n > 1 ? `, mean of ${curve.n}` : "";
  const text = curve[x].map((at, place) => {
    const triple = curve[y].map((part) => part[place]);
    const where = `${measure.name} ${number(convert(at, measure))} ${measure.unit}`.trim();
    return `${plain(cell.label)}${note}<br>${where}: ${triple[0] === null ? "?" : withInterval(triple, CURVE_Y[y], axes.y.isLog)}${of}`;
  });
  return lineTraces(curve[x].map((at) => convert(at, measure)), parts, cell.label, text, cell.done ? "solid" : "dot", ink);
}
