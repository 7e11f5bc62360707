// Throughput and efficiency against the number of workers.

const SCALED = {
  iterations_per_second: { ...MEASURES.iterations_per_second, of: (cell) => cell.values.iterations_per_second },
  samples_per_second: { ...MEASURES.samples_per_second, of: (cell) => cell.values.samples_per_second },
  efficiency: { name: "scaling efficiency", unit: "%", scale: 100, digits: 3, of: (cell) => cell.values.efficiency },
};

function scalingPlot(host) {
  const sized = CELLS.filter((cell) => cell.workers !== "");
  if (!sized.length) return;
  const groups = settings(sized, false);
  const known = Object.entries(SCALED).filter(([, { of }]) => sized.some(of));
  if (!known.length) return;
  let [value, setting] = [known[0][0], fullest(groups)];
  const controls = [
    ["Value", known.map(([key, { name }]) => [key, name]), value, (chosen) => (value = chosen)],
    groups.size > 1 && ["Setting", [...groups.keys()], setting, (chosen) => (setting = chosen)],
  ];
  plot(host, "Throughput against workers", controls, () => {
    const measure = SCALED[value];
    const shown = (groups.get(setting) ?? []).filter((cell) => isDrawn(cell) && measure.of(cell));
    const labels = drawn.filter((label) => shown.some((cell) => cell.label === label));
    const lines = labels.map((label) =>
      shown.filter((cell) => cell.label === label).sort((a, b) => a.workers - b.workers),
    );
    const ideal = lines.length ? idealTraces(lines, value) : [];
    const traces = [...ideal, ...lines.map((line) => scalingTrace(line, measure))];
    const workers = [...new Set(shown.map((cell) => Number(cell.workers)))].sort((a, b) => a - b);
    const layout = {
      xaxis: { title: { text: "workers" }, type: "log", dtick: null, tickvals: workers, ticktext: workers.map(String) },
      yaxis: { title: { text: axisTitle(measure) }, range: lines.length ? [0, top(ideal, lines, measure)] : null },
    };
    const dashes = value === "efficiency" ? "dashed: ideal" : `dashed: ideal, from ${plain(labels[0] ?? "")}`;
    const bars = shown.some((cell) => measure.of(cell).length > 1) ? "bars: 95 % interval" : "";
    const notes = [ideal.length ? dashes : "", bars].filter(Boolean).join("; ");
    if (notes) layout.annotations = [said(notes)];
    return { traces, layout, alt: traces.length ? `${measure.name} against workers: ${saidOf(lines, measure)}` : "" };
  });
}

// What lines and bars are, above the upper right corner.
function said(text) {
  return { text, showarrow: false, xref: "paper", yref: "paper", x: 0, y: 1, yanchor: "bottom", yshift: 2, xanchor: "left", font: { size: 12, color: colour("muted") } };
}

function scalingTrace(line, measure) {
  const values = line.map((cell) => measure.of(cell));
  const bands = values.map((triple) => shownBand(triple, measure));
  const ink = lineColour(line[0].label);
  return {
    x: line.map((cell) => Number(cell.workers)), y: bands.map(([middle]) => middle), type: "scatter", mode: "lines+markers",
    name: plain(line[0].label), line: { color: ink, width: 2 }, marker: { color: ink, symbol: symbol(line[0].label), size: 8 },
    error_y: errorBars(bands, { thickness: 1.2, width: 4, color: ink }),
    text: line.map((cell, place) =>
      `${plain(cell.label)}<br>${settingOf(cell).split(",")[0]}: ${withInterval(values[place], measure)}${seeds(cell)}`),
    hovertemplate: "%{text}<extra></extra>",
  };
}

function seeds(cell) {
  return cell.timed > 1 ? `, mean of ${cell.timed}` : "";
}

// What perfect scaling would be, from where the first line begins: as many samples per second and worker. What a step
// holds depends on how the batch is divided. Drawn through all its points: on an axis of logarithms it is no straight line.
function idealTraces(lines, value) {
  const look = { type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: colour("muted"), width: 1, dash: "dash" } };
  const line = (lines[0] ?? []).filter((cell) => mean(cell, "samples_per_second") > 0);
  if (value === "efficiency") {
    const workers = lines.flat().map((cell) => Number(cell.workers));
    return [{ ...look, x: [Math.min(...workers), Math.max(...workers)], y: [100, 100] }];
  }
  if (line.length < 2) return [];
  const each = mean(line[0], "samples_per_second") / line[0].workers;
  const ideal = (cell) => (each * cell.workers * mean(cell, value)) / mean(cell, "samples_per_second");
  return [{ ...look, x: line.map((cell) => Number(cell.workers)), y: line.map(ideal) }];
}

const HIGHER = 1.6; // what is ideal may be cut off, so that what was measured is not pressed together

function top(ideal, lines, measure) {
  const measured = Math.max(...lines.flat().flatMap((cell) => measure.of(cell)).filter(Number.isFinite)) * measure.scale;
  return Math.min(Math.max(measured, ...ideal.flatMap((trace) => trace.y)), HIGHER * measured) * 1.05;
}

function saidOf(lines, measure) {
  const texts = lines.flat().map((cell) => `${cell.label}, ${cell.workers}: ${number(measure.of(cell)[0] * measure.scale)}`);
  return texts.length <= 24 ? `${texts.join("; ")}.` : `${texts.length} cells.`;
}
