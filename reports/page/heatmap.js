// Any two of what was swept, and a value as a colour; where there are several cells in a field, their mean.

const MOST_FIELDS = 400; // with their numbers written
const [SPAN, SPAN_UNKNOWN] = [5, 0.05]; // least span of the colours: in intervals, and as a share of the highest if not known

// What tells cells apart, as [name, function of a cell].
function dimensions() {
  const all = [
    [DATA.label, (cell) => cell.label],
    ["workers", (cell) => cell.workers],
    ...DATA.keys.map((key, place) => [key, (cell) => cell.keys[place]]),
  ];
  return new Map(all.filter(([, of]) => new Set(CELLS.map(of)).size > 1));
}

function heatmapPlot(host) {
  const dims = dimensions();
  const values = measuresWithValues();
  if (dims.size < 2 || !values.length) return;
  const names = [...dims.keys()];
  let [rows, columns, value] = [names[0], names[1], values[0]];
  const controls = [
    ["Value", values.map((name) => [name, MEASURES[name].name]), value, (chosen) => (value = chosen)],
    ["Rows", names, rows, (chosen) => (rows = chosen)],
    ["Columns", names, columns, (chosen) => (columns = chosen)],
  ];
  plot(host, "Heat map", controls, () => {
    const measured = CELLS.filter((cell) => isDrawn(cell) && mean(cell, value) !== null);
    const [y, x] = [rows, columns].map((name) => [...new Set(measured.map(dims.get(name)))]);
    if (rows !== DATA.label) y.sort(compare);
    if (columns !== DATA.label) x.sort(compare);
    const fields = y.map(() => x.map(() => []));
    for (const cell of measured) fields[y.indexOf(dims.get(rows)(cell))][x.indexOf(dims.get(columns)(cell))].push(cell);
    const { scale, unit, digits } = inUnits(MEASURES[value], measured.map((cell) => mean(cell, value)));
    const average = (cells) => cells.reduce((sum, cell) => sum + mean(cell, value), 0) / cells.length;
    const z = fields.map((line) => line.map((cells) => (cells.length ? average(cells) * scale : null)));
    const halves = fields.map((line) => line.map((cells) => (cells.length === 1 ? halfInterval(cells[0].values[value]) * scale : NaN)));
    const texts = z.map((line, i) => line.map((field, j) => {
      return field === null ? "" : spread(field, halves[i][j], digits);
    }));
    const [zmin, zmax] = colourSpan(z.flat().filter((field) => field !== null), halves.flat().filter(Number.isFinite));
    const trace = {
      type: "heatmap", z, x: x.map((name) => shownName(name)), y: y.map((name) => shownName(name)), xgap: 2, ygap: 2,
      zmin, zmax, colorscale: "Cividis", colorbar: { title: { text: unit }, thickness: 12, outlinewidth: 0 },
      text: texts, texttemplate: x.length * y.length <= MOST_FIELDS ? "%{text}" : "",
      customdata: fields.map((line, i) => line.map((cells, j) =>
        `${plain(rows)} ${shownName(y[i])}, ${plain(columns)} ${shownName(x[j])}: ${texts[i][j]} ${unit}` +
        (cells.length > 1 ? `<br>mean of ${cells.length} cells that differ otherwise` : ""))),
      hovertemplate: "%{customdata}<extra></extra>", hoverongaps: false,
    };
    const layout = {
      height: Math.max(260, 130 + 30 * y.length),
      xaxis: { title: { text: plain(columns) }, type: "category", showgrid: false },
      annotations: halves.flat().some(Number.isFinite) ? [said("±: half the 95 % interval")] : [],
      yaxis: { title: { text: plain(rows) }, type: "category", autorange: "reversed", showgrid: false },
    };
    const alt = `${MEASURES[value].name} by ${rows} and ${columns}; the numbers are in the tables.`;
    return { traces: measured.length ? [trace] : [], layout, alt };
  });
}

// Half of a 95 % interval; NaN of a single run.
function halfInterval([, low, high]) {
  return low === undefined || low === null ? NaN : (high - low) / 2;
}

// The ends of the colours: wider than the values where these hardly differ, so that noise does not look like structure.
function colourSpan(values, halves) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const half = [...halves].sort((a, b) => a - b)[Math.floor(halves.length / 2)];
  const least = half > 0 ? SPAN * 2 * half : SPAN_UNKNOWN * Math.abs(high);
  const middle = (low + high) / 2;
  return high - low < least ? [middle - least / 2, middle + least / 2] : [low, high];
}

function shownName(name) {
  return plain(name || "null", 32);
}
