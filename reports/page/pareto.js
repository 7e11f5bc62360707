// What accuracy costs in one setting: a point for each cell, and the stairs of those that no other beats in both.

const COSTS = {
  iterations_per_second: { more: true, log: false },
  samples_per_second: { more: true, log: false },
  sent_bytes: { more: false, log: true },
  time_s: { more: false, log: false },
};

function paretoPlot(host) {
  const costs = Object.keys(COSTS).filter((name) => CELLS.some((cell) => mean(cell, name) !== null));
  if (!costs.length || !CELLS.some((cell) => mean(cell, "accuracy") !== null)) return;
  const groups = settings(CELLS);
  let [x, setting] = [costs[0], fullest(groups)];
  const controls = [
    ["Accuracy against", costs.map((name) => [name, MEASURES[name].name]), x, (chosen) => (x = chosen)],
    groups.size > 1 && ["Setting", [...groups.keys()], setting, (chosen) => (setting = chosen)],
  ];
  plot(host, "Pareto front", controls, () => {
    const isMeasured = (cell) => mean(cell, x) > 0 && mean(cell, "accuracy") !== null;
    const shown = (groups.get(setting) ?? []).filter((cell) => isDrawn(cell) && isMeasured(cell));
    const hasBars = shown.some((cell) => cell.values.accuracy.length > 1 || cell.values[x].length > 1);
    const front = frontOf(shown, x);
    const traces = drawn.filter((label) => shown.some((cell) => cell.label === label)).map((label) => {
      const cells = shown.filter((cell) => cell.label === label);
      const ink = lineColour(label);
      const bars = { color: ink, thickness: 1, width: 0 };
      return {
        error_x: errorBars(cells.map((cell) => cell.values[x]), 1, bars),
        error_y: errorBars(cells.map((cell) => cell.values.accuracy), 100, bars),
        type: "scatter", mode: "markers", name: plain(label), x: cells.map((cell) => mean(cell, x)),
        y: cells.map((cell) => mean(cell, "accuracy") * 100),
        marker: { color: ink, symbol: symbol(label), size: 10, line: { color: colour("paper"), width: 1 },
          opacity: cells.map((cell) => (front.includes(cell) ? 1 : 0.4)) },
        text: cells.map((cell) => `${plain(label)}<br>${plain(settingOf(cell), 120)}${seeds(cell)}<br>` +
          `accuracy ${withInterval(cell.values.accuracy, MEASURES.accuracy)}<br>` +
          `${MEASURES[x].name} ${withInterval(cell.values[x], MEASURES[x])}`),
        hovertemplate: "%{text}<extra></extra>",
      };
    });
    if (front.length > 1) {
      traces.unshift({
        type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: colour("muted"), width: 1.5, shape: "hv" },
        x: front.map((cell) => mean(cell, x)), y: front.map((cell) => mean(cell, "accuracy") * 100),
      });
    }
    const layout = {
      xaxis: { title: { text: axisTitle(MEASURES[x]) }, type: COSTS[x].log ? "log" : "linear", exponentformat: "SI" },
      yaxis: { title: { text: axisTitle(MEASURES.accuracy) } },
      annotations: [said(`line: Pareto front${hasBars ? "; bars: 95 % interval" : ""}`)],
    };
    const names = front.map((cell) => `${cell.label}, ${settingOf(cell)}`).slice(0, 12).join("; ");
    return { traces, layout, alt: traces.length ? `Accuracy against ${MEASURES[x].name}. On the front: ${names}.` : "" };
  });
}

function frontOf(cells, x) {
  const sign = COSTS[x].more ? -1 : 1;
  let best = -Infinity;
  const cheapest = [...cells].sort(
    (a, b) => sign * (mean(a, x) - mean(b, x)) || mean(b, "accuracy") - mean(a, "accuracy"),
  );
  return cheapest.filter((cell) => {
    const isBetter = mean(cell, "accuracy") > best;
    best = Math.max(best, mean(cell, "accuracy"));
    return isBetter;
  });
}
