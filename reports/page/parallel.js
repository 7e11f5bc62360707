// Parallel coordinates: a line per cell through what it was set to and what came out.
// Drawn as ordinary lines, since plotly's own kind wants WebGL and code that the page's policy forbids.

const MOST_LINES = 400;
const MOST_NAMES = 14; // beside an axis

function parallelPlot(host) {
  const swept = [...dimensions()].slice(0, 8);
  const results = ["iterations_per_second", "sent_bytes", "accuracy"].filter((name) =>
    CELLS.some((cell) => mean(cell, name) !== null),
  );
  if (!swept.length || swept.length + results.length < 3) return;
  plot(host, "Parallel coordinates", [], () => {
    const all = CELLS.filter((cell) => isShown(cell.label) && results.every((name) => mean(cell, name) !== null));
    const shown = all.slice(0, MOST_LINES);
    const axes = [
      ...swept.map(([name, of]) => namedAxis(name, shown.map(of))),
      ...results.map((name) => numberAxis(titled(name), shown.map((cell) => mean(cell, name) * MEASURES[name].scale))),
    ];
    const traces = drawn.filter((label) => shown.some((cell) => cell.label === label)).map((label) => {
      const places = shown.map((_, place) => place).filter((place) => shown[place].label === label);
      return {
        type: "scatter", mode: "lines+markers", name: plain(label), line: { color: lineColour(label), width: 1.2 },
        marker: { color: lineColour(label), size: 5 }, opacity: 0.75, hovertemplate: "%{text}<extra></extra>",
        x: places.flatMap(() => [...axes.map((_, at) => at), null]),
        y: places.flatMap((place) => [...axes.map((axis) => axis.heights[place]), null]),
        text: places.flatMap((place) =>
          Array(axes.length + 1).fill(axes.map((axis) => `${plain(axis.name)}: ${plain(axis.texts[place])}`).join("<br>"))),
      };
    });
    const left = all.length > shown.length ? `; the first ${shown.length} of ${all.length} cells` : "";
    const layout = {
      margin: { l: 90, r: 70, t: 24, b: 60 }, width: Math.max(host.clientWidth, 120 * axes.length),
      xaxis: {
        tickvals: axes.map((_, at) => at), ticktext: axes.map((axis) => plain(axis.name, 24).replace(" [", "<br>[")),
        showgrid: false, zeroline: false, tickangle: 0, range: [-0.25, axes.length - 0.75], fixedrange: true,
        title: { text: left.replace("; ", "") },
      },
      yaxis: { visible: false, range: [-0.05, 1.05], fixedrange: true },
      shapes: axes.map((_, at) => ({
        type: "line", x0: at, x1: at, y0: 0, y1: 1, layer: "below", line: { color: colour("muted"), width: 1 },
      })),
      annotations: axes.flatMap((axis, at) => axis.ticks.map(([height, text]) => ({
        x: at, y: height, text: plain(text, 18), showarrow: false, xanchor: "right", xshift: -6,
        font: { size: 11, color: colour("text") }, bgcolor: colour("paper"), borderpad: 1,
      }))),
    };
    return { traces, layout, alt: `A line per cell through ${axes.map((axis) => axis.name).join(", ")}${left}.` };
  });
}

function namedAxis(name, values) {
  const names = [...new Set(values)];
  if (name === "compressor") names.reverse();
  else names.sort(compare);
  const heightOf = (value) => (names.length > 1 ? names.indexOf(value) / (names.length - 1) : 0.5);
  const step = Math.ceil(names.length / MOST_NAMES);
  const ticks = names.filter((_, place) => place % step === 0).map((value) => [heightOf(value), value || "null"]);
  return { name, heights: values.map(heightOf), texts: values.map((value) => value || "null"), ticks };
}

function numberAxis(name, values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const heightOf = (value) => (most > least ? (value - least) / (most - least) : 0.5);
  const ticks = values.length ? [...new Set([least, (least + most) / 2, most])].map((v) => [heightOf(v), number(v)]) : [];
  return { name, heights: values.map(heightOf), texts: values.map((value) => number(value, 4)), ticks };
}
