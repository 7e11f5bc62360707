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
  let [value, setting] = ["iterations_per_second", fullest(groups)];
  const controls = [
    select("Value", Object.entries(SCALED).map(([key, { name }]) => [key, name]), value, (chosen) => {
      value = chosen;
      again();
    }),
  ];
  if (groups.size > 1) {
    controls.push(
      select("Setting", [...groups.keys()], setting, (chosen) => {
        setting = chosen;
        again();
      }),
    );
  }
  const again = plot(host, "Throughput against workers", controls, () => {
    const measure = SCALED[value];
    const shown = (groups.get(setting) ?? []).filter((cell) => isShown(cell.label) && measure.of(cell));
    const labels = drawn.filter((label) => shown.some((cell) => cell.label === label));
    const lines = labels.map((label) =>
      shown.filter((cell) => cell.label === label).sort((a, b) => a.workers - b.workers),
    );
    const traces = [...idealTraces(lines, value), ...lines.map((line) => scalingTrace(line, measure))];
    const workers = [...new Set(shown.map((cell) => Number(cell.workers)))].sort((a, b) => a - b);
    const layout = {
      xaxis: { title: { text: "workers" }, type: "log", dtick: null, tickvals: workers, ticktext: workers.map(String) },
      yaxis: { title: { text: axisTitle(measure) }, rangemode: "tozero" },
    };
    return { traces, layout, alt: traces.length ? `${measure.name} against workers: ${saidOf(lines, measure)}` : "" };
  });
}

function scalingTrace(line, measure) {
  const values = line.map((cell) => measure.of(cell));
  const scaled = (part) => values.map((triple) => triple[part] * measure.scale);
  const ink = lineColour(line[0].label);
  return {
    x: line.map((cell) => Number(cell.workers)), y: scaled(0), type: "scatter", mode: "lines+markers",
    name: plain(line[0].label), line: { color: ink, width: 2 }, marker: { color: ink, symbol: symbol(line[0].label), size: 8 },
    error_y: errorBars(values, measure.scale, { thickness: 1.2, width: 4, color: ink }),
    text: line.map((cell, place) =>
      `${plain(cell.label)}<br>${settingOf(cell).split(",")[0]}: ${withInterval(values[place], measure)}${seeds(cell)}`),
    hovertemplate: "%{text}<extra></extra>",
  };
}

function seeds(cell) {
  return cell.done > 1 ? `, mean of ${cell.done}` : "";
}

// What perfect scaling would be, from where each line begins; one line where all are shares.
function idealTraces(lines, value) {
  const look = { type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: colour("muted"), width: 1, dash: "dash" } };
  const workers = lines.flat().map((cell) => Number(cell.workers));
  if (!workers.length || value === "iterations_per_second") return [];
  const [least, most] = [Math.min(...workers), Math.max(...workers)];
  if (value === "efficiency") return [{ ...look, x: [least, most], y: [100, 100] }];
  return lines.map(([first]) => {
    const each = mean(first, "samples_per_second") / first.workers;
    return { ...look, x: [first.workers, most].map(Number), y: [each * first.workers, each * most] };
  });
}

function saidOf(lines, measure) {
  const texts = lines.flat().map((cell) => `${cell.label}, ${cell.workers}: ${number(measure.of(cell)[0] * measure.scale)}`);
  return texts.length <= 24 ? `${texts.join("; ")}.` : `${texts.length} cells.`;
}
