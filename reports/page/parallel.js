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
  const kept = new Map(); // by axis, from which height to which
  const show = make("button", { type: "button", disabled: true, click: () => keep([], null) }, "All lines");
  const hint = make("p", { class: "note" }, "Drag over a part of an axis: only the lines that pass there stay; of further axes likewise.");
  const keep = (places, heights) => {
    if (!heights) kept.clear();
    for (const place of places) kept.set(place, heights);
    show.disabled = kept.size === 0;
    again();
  };
  const events = {
    plotly_selected: (event) => {
      if (!event?.range) return; // a click, or what a change of the plot has left
      const [left, right] = [...event.range.x].sort((a, b) => a - b);
      const places = Array.from({ length: swept.length + results.length }, (_, at) => at).filter((at) => left <= at && at <= right);
      keep(places, [...event.range.y].sort((a, b) => a - b));
    },
    plotly_deselect: () => keep([], null),
  };
  const again = plot(host, "Parallel coordinates", [hint, show], () => {
    const all = CELLS.filter((cell) => isDrawn(cell) && results.every((name) => mean(cell, name) !== null));
    const lines = all.slice(0, MOST_LINES);
    const axes = [
      ...swept.map(([name, of]) => namedAxis(name, lines.map(of))),
      ...results.map((name) => numberAxis(MEASURES[name], lines.map((cell) => mean(cell, name)))),
    ];
    const passes = (place) => [...kept].every(([at, [low, high]]) => low <= axes[at].heights[place] && axes[at].heights[place] <= high);
    const every = lines.map((_, place) => place);
    const linesOf = (label, isKept) => every.filter((place) => lines[place].label === label && passes(place) === isKept);
    const groups = [false, true].flatMap((isKept) => drawn.map((label) => [label, isKept, linesOf(label, isKept)]));
    const traces = groups.filter(([, , places]) => places.length).map(([label, isKept, places]) => {
      return {
        type: "scatter", mode: "lines+markers", name: plain(label), line: { color: lineColour(label), width: 1.2 },
        marker: { color: lineColour(label), size: 5 }, opacity: isKept ? 0.75 : 0.1,
        unselected: { marker: { opacity: 1 } }, ...(isKept ? { hovertemplate: "%{text}<extra></extra>" } : { hoverinfo: "skip" }),
        x: places.flatMap(() => [...axes.map((_, at) => at), null]),
        y: places.flatMap((place) => [...axes.map((axis) => axis.heights[place]), null]),
        text: places.flatMap((place) =>
          Array(axes.length + 1).fill(axes.map((axis) => `${plain(axis.name)}: ${plain(axis.texts[place])}`).join("<br>"))),
      };
    });
    const left = all.length > lines.length ? `; the first ${lines.length} of ${all.length} cells` : "";
    const layout = {
      dragmode: "select", newselection: { line: { width: 0 } }, selections: [],
      margin: { l: 90, r: 70, t: 24, b: 60 }, width: Math.max(host.clientWidth, 120 * axes.length),
      xaxis: {
        tickvals: axes.map((_, at) => at), ticktext: axes.map((axis) => plain(axis.name, 24).replace(" [", "<br>[")),
        showgrid: false, zeroline: false, tickangle: 0, range: [-0.25, axes.length - 0.75], fixedrange: true,
        title: { text: left.replace("; ", "") },
      },
      yaxis: { visible: false, range: [-0.05, 1.05], fixedrange: true },
      shapes: [
        ...axes.map((_, at) => ({
          type: "line", x0: at, x1: at, y0: 0, y1: 1, layer: "below", line: { color: colour("muted"), width: 1 },
        })),
        ...[...kept].map(([at, [low, high]]) => ({
          type: "rect", x0: at - 0.04, x1: at + 0.04, y0: low, y1: high, line: { width: 0 }, fillcolor: colour("link"), opacity: 0.35,
        })),
      ],
      annotations: axes.flatMap((axis, at) => axis.ticks.map(([height, text]) => ({
        x: at, y: height, text: plain(text, 18), showarrow: false, xanchor: "right", xshift: -6,
        font: { size: 11, color: colour("text") }, bgcolor: colour("paper"), borderpad: 1,
      }))),
    };
    const chosen = kept.size ? `; ${every.filter(passes).length} of ${lines.length} lines stay` : "";
    return { traces, layout, alt: `A line per cell through ${axes.map((axis) => axis.name).join(", ")}${left}${chosen}.` };
  }, labelLegend, events);
}

function namedAxis(name, values) {
  const names = [...new Set(values)];
  if (name === "compressor") names.reverse();
  else names.sort(compare);
  const heightOf = (value) => (names.length > 1 ? names.indexOf(value) / (names.length - 1) : 0.5);
  const step = Math.ceil(names.length / MOST_NAMES);
  const ticks = names.filter((_, place) => (names.length - 1 - place) % step === 0).map((value) => [heightOf(value), value || "null"]);
  return { name, heights: values.map(heightOf), texts: values.map((value) => value || "null"), ticks };
}

function numberAxis(measure, numbers) {
  const inUnit = inUnits(measure, numbers);
  const values = numbers.map((value) => convert(value, inUnit));
  const name = axisTitle(inUnit);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const heightOf = (value) => (most > least ? (value - least) / (most - least) : 0.5);
  const ticks = values.length ? [...new Set([least, (least + most) / 2, most])].map((v) => [heightOf(v), number(v)]) : [];
  return { name, heights: values.map(heightOf), texts: values.map((value) => number(value, 4)), ticks };
}
