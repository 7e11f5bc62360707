// What accuracy costs in one setting: a point for each cell, and the stairs of those that no other beats in both.

const COSTS = {
  iterations_per_second: { more: true },
  samples_per_second: { more: true },
  sent_bytes: { more: false },
  time_s: { more: false },
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
    const measured = (groups.get(setting) ?? []).filter((cell) => isDrawn(cell) && isMeasured(cell));
    const hasBars = measured.some((cell) => cell.values.accuracy.length > 1 || cell.values[x].length > 1);
    const front = frontOf(measured, x);
    const measure = inUnits(MEASURES[x], measured.map((cell) => mean(cell, x)));
    const isLog = isWide(measured.map((cell) => mean(cell, x)));
    const scaleX = isLog ? logAxis(...rangeOfPositive(measured.map((cell) => convert(mean(cell, x), measure)))) : { type: "linear" };
    const [bandX, bandY] = [(cell) => shownBand(cell.values[x], measure, isLog), (cell) => shownBand(cell.values.accuracy, MEASURES.accuracy)];
    const traces = drawn.filter((label) => measured.some((cell) => cell.label === label)).map((label) => {
      const cells = measured.filter((cell) => cell.label === label);
      const ink = lineColour(label);
      const bars = { color: faint(ink, 0.45), thickness: 1, width: 0 };
      return {
        error_x: errorBars(cells.map(bandX), bars),
        error_y: errorBars(cells.map(bandY), bars),
        type: "scatter", mode: "markers", name: plain(label), x: cells.map((cell) => bandX(cell)[0]),
        y: cells.map((cell) => bandY(cell)[0]),
        marker: { color: ink, symbol: symbol(label), size: 10, line: { color: colour("paper"), width: 1 },
          opacity: cells.map((cell) => (front.includes(cell) ? 1 : 0.55)) },
        text: cells.map((cell) => `${plain(label)}<br>${plain(settingOf(cell), 120)}${seeds(cell)}<br>` +
          `accuracy ${withInterval(cell.values.accuracy, MEASURES.accuracy)}<br>` +
          `${measure.name} ${withInterval(cell.values[x], measure, isLog)}`),
        hovertemplate: "%{text}<extra></extra>",
      };
    });
    const [rangeX, rangeY] = [spanOf(measured.map(bandX), isLog), spanOf(measured.map(bandY))];
    if (front.length) traces.unshift(stairs(front.map((cell) => [bandX(cell)[0], bandY(cell)[0]]), rangeX, rangeY, COSTS[x].more));
    const layout = {
      xaxis: { title: { text: axisTitle(measure) }, ...scaleX, range: isLog ? rangeX.map(Math.log10) : rangeX },
      yaxis: { title: { text: axisTitle(MEASURES.accuracy) }, range: rangeY },
      annotations: [said(`line: Pareto front${hasBars ? "; bars: 95 % interval" : ""}`)],
    };
    const names = front.map((cell) => `${cell.label}, ${settingOf(cell)}`).slice(0, 12).join("; ");
    return { traces, layout, alt: traces.length ? `Accuracy against ${MEASURES[x].name}. On the front: ${names}.` : "" };
  });
}

// From below the least end to above the most of (mean, low, high), as far as values are positive on a logarithmic axis.
function spanOf(bands, isLog = false) {
  const values = bands.flat().filter((value) => Number.isFinite(value)).map((value) => (isLog ? Math.log10(value) : value));
  const [least, most] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const margin = 0.07 * (most - least || Math.abs(most) || 1);
  return [least - margin, most + margin].map((end) => (isLog ? 10 ** end : end));
}

// The front as stairs to the edges of the axes: what is below it, another cell beats.
function stairs(points, [left, right], [bottom], isMoreBetter) {
  const sorted = [...points].sort(([a], [b]) => a - b);
  const [first, last] = [sorted[0], sorted.at(-1)];
  const corners = isMoreBetter ? [[left, first[1]], ...sorted, [last[0], bottom]] : [[first[0], bottom], ...sorted, [right, last[1]]];
  return {
    type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: colour("muted"), width: 1.5, shape: isMoreBetter ? "vh" : "hv" },
    x: corners.map(([x]) => x), y: corners.map(([, y]) => y),
  };
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
